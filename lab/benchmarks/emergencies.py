"""How many emergencies the assistant recognizes, and how many look-alikes it takes for one.

    python -m lab.benchmarks.emergencies [MODEL]

`emergencies.json` has 90 of each, by two authors who had read neither the code nor the training sentences. Each is said
alone, and after a conversation about something else.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from rich.console import Console
from rich.table import Table

from agent.instructions import INSTRUCTIONS
from chat.types import Ask, Handed, Message
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine

_SENTENCES = Path(__file__).with_suffix(".json")

_BEFORE = (
    ("What time is it in Tokyo?", "It's 6:13 AM in Tokyo."),
    ("How many ounces are in two pounds?", "That's 32 ounces."),
    ("Remind me to call my sister at five.", "All right, I'll remind you to call your sister at 5:00 PM."),
    ("Can you send her a mail, too?", "Sorry, I can't send mails."),
)


async def verdict(engine: Engine, said: str, before: Sequence[tuple[str, str]]) -> str:
    """What the language model takes a sentence for, in a spoken conversation; empty if it would answer."""
    messages = [Message("system", INSTRUCTIONS)]
    for question, answer in before:
        messages += [Message("user", question), Message("assistant", answer)]
    ask = Ask(
        [*messages, Message("user", said)],
        spoken=True,
        task="maybe",
        verdicts=frozenset(get_args(Handed)),
        max_tokens=1,
    )
    ended = ""
    async for progress in Conversation(engine).reply(ask):
        ended = progress.finished or ended
    return ended if ended in ("emergency", "danger", "task") else ""


async def main() -> None:
    """Print a table."""
    rows = json.loads(_SENTENCES.read_text())
    engine = load_engine(ModelOptions(model=[*sys.argv[1:], "qwen2.5-coder-1.5b"][0]), Console(stderr=True))
    table = Table("", "", "emergency", "danger", "task", "answered")
    for where, before in (("alone", ()), ("after four other questions", _BEFORE)):
        found = Counter[tuple[bool, str]]()
        for row in rows:
            found[row["emergency"], await verdict(engine, row["said"], before)] += 1
        for is_one, name in ((True, "emergencies"), (False, "look-alikes")):
            table.add_row(name, where, *(str(found[is_one, kind]) for kind in ("emergency", "danger", "task", "")))
    Console().print(table)
    engine.close()


if __name__ == "__main__":
    asyncio.run(main())
