"""A search server and a weather server that answer with a text of somebody else."""

from __future__ import annotations

import json
from datetime import date, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit


class FakeServices:
    """Both, on a port of this machine.

    Attributes:
        text: what every answer has.
        kind: `search` or `weather`: the one that answers with it.
        asked: what was asked.
    """

    def __init__(self) -> None:
        self.text, self.kind, self.asked = "", "", list[str]()
        services = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                services.asked += [value for values in parse_qs(parts.query).values() for value in values]
                body = json.dumps(services.answer(parts.path)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, path: str) -> dict[str, Any]:
        """The answer to a request of a path."""
        match path:
            case "/search":
                text = self.text if self.kind == "search" else "The ferry leaves at nine."
                return {"results": [{"title": "Ferries", "url": "https://example.org/", "content": text}]}
            case "/v1/search":
                name = self.text if self.kind == "weather" else "Oslo"
                return {"results": [{"name": name, "latitude": 59.9, "longitude": 10.7}]}
        days = [str(date.today() + timedelta(n)) for n in range(7)]
        daily = {"time": days, "weather_code": [3] * 7, "temperature_2m_max": [9] * 7, "temperature_2m_min": [2] * 7}
        return {"current": {"temperature_2m": 7, "weather_code": 3}, "daily": daily}

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
