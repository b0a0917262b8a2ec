"""Whether a real model makes all calls of a request that needs several.

    python -m lab.benchmarks.tool_loops [--model NAME] [--part tune|report] [--kind KIND …]

Every request of requests.toml is asked in a written conversation of its own, with all built-in tools and whatever the
session does to have a turn take several steps. What was called and said is printed, to be read.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import asyncio
import re
import tempfile
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from agent.tools.server_tools import ServerTools, ToolSettings
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.hub.catalog import QWEN_15B
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine
from tests.fakes import fake_speech_models
from voice import events
from voice.history import FunctionCall, Item
from voice.playback import SessionSettings
from voice.session import VoiceSession

KINDS = ("several", "one", "none", "dependent", "sufficient", "injected")
WITH_OWN_TOOLS = ("dependent", "sufficient", "injected")


async def ask(engine: Engine, server_tools: ServerTools, request: str) -> tuple[list[str], str]:
    """The calls that a request leads to, and what is said."""
    tools = server_tools.conversation()
    tools.enable(server_tools.registry)
    settings = SessionSettings(detect_turns=False, speak=False, tools=tools.declarations, max_tokens=80)
    session_events: asyncio.Queue[events.SessionEvent] = asyncio.Queue()
    model = Conversation(engine)
    session = VoiceSession(model, fake_speech_models(), session_events.put_nowait, settings, tools=tools)
    session.history.add(Item("question", "user", request, spoken=False, complete=True))
    session.respond()
    while not isinstance(event := await session_events.get(), events.ResponseDone):
        pass
    await session.close()
    return [f"{item.name}{item.arguments}" for item in event.items if isinstance(item, FunctionCall)], event.item.text


async def judge(engine: Engine, kind: str, requests: Sequence[Sequence[Any]], files: tuple[Path, ...]) -> str:
    """Ask, and return the figures.

    Args:
        requests: each with the tools that it needs, and perhaps what its last call has.
        files: tools besides the built-in ones.
    """
    right = 0
    server_tools = ServerTools(ToolSettings(files, data=Path(tempfile.mkdtemp())))
    async with server_tools.running():
        for request, expected, *last in requests:
            calls, said = await ask(engine, server_tools, request)
            good = Counter(call.partition("{")[0] for call in calls) == Counter(expected)
            good = good and all(re.search(pattern, calls[-1]) for pattern in last)
            right += good
            print(f"{' ' if good else '!'} {request} → {', '.join(calls) or '–'} → {said}", flush=True)
    return f"{kind}: exactly the calls that are needed: {right} of {len(requests)}"


def main() -> None:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=QWEN_15B.name)
    parser.add_argument("--part", choices=("tune", "report"), default="report")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only requests of this kind; repeatable")
    options = parser.parse_args()
    requests = tomllib.loads((Path(__file__).parent / "requests.toml").read_text(encoding="utf-8"))[options.part]
    requests["none"] = [(request, []) for request in requests["none"]]
    own_tools = (Path(__file__).with_name(f"{options.part}_tools.py"),)
    engine = load_engine(ModelOptions(model=options.model), Console(stderr=True))
    try:
        figures = [
            asyncio.run(judge(engine, kind, requests[kind], own_tools if kind in WITH_OWN_TOOLS else ()))
            for kind in options.kind or KINDS
        ]
        print(*figures, sep="\n")
    finally:
        engine.close()


if __name__ == "__main__":
    main()
