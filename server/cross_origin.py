"""Lets the pages of other sites that the operator allows use the API over HTTP: browsers ask before they send a key,
and whether a page may read the answer. Who is refused is not decided here (`ServerContext.check_origin`)."""

from __future__ import annotations

from collections.abc import Collection

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

_API = ("/v1/", "/v2/", "/infill")
"""What pages of other sites may use: nothing of the operator's."""


class CrossOrigin:
    """Middleware that answers what browsers ask.

    Args:
        origins: of the pages; `*` allows all.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app = app
        self._api = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            allow_private_network=True,  # a server at home, used by a page of the internet
            expose_headers=("retry-after",),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_api = scope["type"] == "http" and scope["path"].startswith(_API)
        await (self._api if is_api else self._app)(scope, receive, send)
