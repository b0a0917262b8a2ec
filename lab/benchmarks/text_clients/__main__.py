"""Runs clients that others wrote against the text API with the real models, and checks what they report.

    python -m lab.benchmarks.text_clients [--clients openai vercel …] [--url http://127.0.0.1:8000] [-- serve's options]

The environments stay in the work folder, so that a second run starts at once. The clients themselves are unmodified.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import server.openmp  # noqa: F401 - before torch
from lab.benchmarks.client_environments import Client, run_clients

_SCRIPTS = Path(__file__).parent

CLIENTS = {
    "openai": Client(("openai==3.54.0",), _SCRIPTS / "openai_client.py"),
    "litellm": Client(("litellm==1.106.2", "mcp"), _SCRIPTS / "litellm_client.py"),
    "langchain": Client(("langchain-openai==1.7.4",), _SCRIPTS / "langchain_client.py"),
    "cohere": Client(("cohere==7.3.1",), _SCRIPTS / "cohere_client.py"),
    "vercel": Client(("ai@7.0.173", "@ai-sdk/openai-compatible@3.0.92", "zod@4.6.7"), _SCRIPTS / "vercel_client.mjs"),
}

PERSON = {"name": "Mary Smith", "age": 42}


def _names_paris(text: Any) -> bool:
    return "paris" in str(text).lower()


def _asks_for_oslo(arguments: Any) -> bool:
    return "oslo" in str(arguments.get("city", "")).lower()


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "models": lambda models: len(models) == 1,
    "chat": _names_paris,
    "streamed": _names_paris,
    "streamed_tokens": lambda tokens: tokens > 0,
    "call": _asks_for_oslo,
    "streamed_call": _asks_for_oslo,
    "after_call": bool,
    "extracted": PERSON.__eq__,
    "streamed_object": PERSON.__eq__,
    "response": _names_paris,
    "ranked": lambda indices: len(indices) == 2 and indices[0] == 1,
    "ranked_texts": lambda texts: len(texts) == 3 and "boiler" in texts[0],
    "probabilities": lambda scores: len(scores) == 3 and scores == sorted(scores, reverse=True),
    "transcript": lambda words: "brown fox" in words.lower(),
}
"""What each field of a report must be. A client that has no such API leaves the field out."""


def faults(report: dict[str, Any]) -> list[str]:
    """What is wrong with a client's report."""
    wrong = [f"{name}: {value!r}" for name, value in report.items() if name in _CHECKS and not _CHECKS[name](value)]
    same = {report[name] for name in ("chat", "streamed", "scored") if name in report}
    return wrong if len(same) <= 1 else [*wrong, f"the text differs between requests: {same}"]


if __name__ == "__main__":
    run_clients("text", CLIENTS, faults)
