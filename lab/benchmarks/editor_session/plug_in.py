"""The requests that llama.vscode sends while somebody types, from a session file.

Source: its `src/completion.ts`, `src/llama-server.ts` and `src/extra-context.ts` of 2026-08-19, with its default
settings. It sends no request while one of its own is under way, and asks for whole responses.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SESSION = Path(__file__).with_name("session.toml")

_PREFIX_LINES, _SUFFIX_LINES, _TOKENS = 256, 64, 128
"""Lines around the cursor that it sends, and the longest suggestion that it wants."""

_MAX_PROMPT_MS, _MAX_PREDICT_MS = 500, 500

_FIXED = {"top_k": 40, "top_p": 0.99, "stream": False, "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True}


@dataclass(frozen=True)
class EditorRequest:
    """One request to `/infill`.

    Attributes:
        kind: `context`, which reads another file ahead; `moved`, the first one after the cursor has moved to another
            line; or `typing`.
    """

    kind: str
    body: dict[str, Any]


def editor_requests(path: Path = SESSION) -> Iterator[EditorRequest]:
    """The requests of a session, in order."""
    session = tomllib.loads(path.read_text(encoding="utf-8"))
    other, lines = session["other"], session["document"]["text"].split("\n")
    chunks = [{"text": other["text"], "time": 0, "filename": other["filename"]}]
    yield EditorRequest("context", _context_request(chunks))
    for typed in session["typed"]:
        for number, text in enumerate(typed["pieces"]):
            lines[typed["line"] - 1] = text
            kind = "typing" if number else "moved"
            yield EditorRequest(kind, _suggestion_request(lines, typed["line"] - 1, chunks))


def _context_request(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    nothing = {"input_prefix": "", "input_suffix": "", "prompt": "", "n_predict": 0, "samplers": []}
    limits = {"t_max_prompt_ms": _MAX_PROMPT_MS, "t_max_predict_ms": 1}
    return {"id_slot": 0, "input_extra": chunks, "cache_prompt": True, **nothing, **limits}


def _suggestion_request(lines: list[str], line: int, chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """The cursor is at the end of a line, counted from 0."""
    text = lines[line]
    indent = len(text) - len(text.lstrip())
    return {
        "id_slot": 0,
        "input_prefix": "\n".join(lines[max(0, line - _PREFIX_LINES) : line]) + "\n",
        "input_suffix": "\n" + "\n".join(lines[line + 1 : line + 1 + _SUFFIX_LINES]) + "\n",
        "input_extra": chunks,
        "prompt": text if text.strip() else "",  # of an empty line it removes the indentation from the suggestion
        "n_predict": _TOKENS,
        "n_cmpl": 3,
        **_FIXED,
        **({"n_indent": indent} if indent else {}),
        "t_max_prompt_ms": _MAX_PROMPT_MS,
        "t_max_predict_ms": _MAX_PREDICT_MS,
    }
