"""What was called in answer to each question: asks the Chat Completions API, and keeps the answers in a file, so that a
run can be interrupted and continued."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from lab.benchmarks.bfcl.items import Item


@dataclass(frozen=True)
class Result:
    """The answer to a question.

    Attributes:
        calls: name and arguments (JSON text) of each call.
        refusal: why the server did not answer; empty if it did.
        seconds: from the request to the whole answer.
    """

    id: str
    calls: Sequence[tuple[str, str]]
    text: str
    refusal: str
    seconds: float


class Results:
    """A file with results of several runs, one a line.

    Args:
        settings: what a result depends on, apart from the program itself. Only results with the same settings are read.
    """

    def __init__(self, file: Path, settings: Mapping[str, Any]) -> None:
        self._file, self._settings = file, dict(settings)
        self.of: dict[str, Result] = {}
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        for line in lines:
            record = json.loads(line)
            if record.pop("settings") == self._settings:
                calls = tuple((name, arguments) for name, arguments in record.pop("calls"))
                self.of[record["id"]] = Result(calls=calls, **record)

    def add(self, result: Result) -> None:
        """Keep a result, also if the program ends now."""
        self.of[result.id] = result
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**asdict(result), "settings": self._settings}, ensure_ascii=False) + "\n")


async def ask(client: httpx.AsyncClient, item: Item, max_tokens: int) -> Result:
    """Ask a question. The server may call or answer with text, and call several times, which is OpenAI's default.

    Raises:
        httpx.HTTPError: the server cannot be reached, or failed.
    """
    request = {
        "messages": item.messages,
        "tools": item.tools,
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "temperature": 0,
        "max_tokens": max_tokens,
    }
    started = time.perf_counter()
    response = await client.post("/v1/chat/completions", json=request)
    seconds = round(time.perf_counter() - started, 3)
    if response.status_code == httpx.codes.BAD_REQUEST:
        return Result(item.id, (), "", response.json()["error"]["message"], seconds)
    message = response.raise_for_status().json()["choices"][0]["message"]
    made = [call["function"] for call in message.get("tool_calls") or ()]
    calls = tuple((call["name"], call["arguments"]) for call in made)
    return Result(item.id, calls, message["content"] or "", "", seconds)


async def ask_all(client: httpx.AsyncClient, items: Iterable[Item], results: Results, max_tokens: int) -> None:
    """Ask, and keep each result. Raises httpx.HTTPError."""
    for item in items:
        results.add(await ask(client, item, max_tokens))
