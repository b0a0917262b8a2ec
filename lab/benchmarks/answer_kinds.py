"""How often a reasoning effort recognizes what kind of answer a message asks for (`Reasoner.kind`).

    python -m lab.benchmarks.answer_kinds [MODEL]

`answer_kinds.json` has 96 messages by an author who had not read the code. `KIND_BIAS` was fitted to those at even
places; the others are held out.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import asyncio
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from agent.reasoning.prompt import KIND_BIAS
from agent.reasoning.reasoner import Reasoner
from chat.types import Message
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine

_MESSAGES = Path(__file__).with_suffix(".json")


async def recognized(engine: Engine, rows: Sequence[Mapping[str, str]]) -> Counter[tuple[str, str]]:
    """How many messages of each kind were taken for which."""
    found = Counter[tuple[str, str]]()
    for row in rows:
        reasoner = Reasoner(Conversation(engine), [Message("user", row["message"])], "high")
        found[row["kind"], await reasoner.kind()] += 1
    return found


async def main() -> None:
    """Print both halves."""
    rows = json.loads(_MESSAGES.read_text())
    engine = load_engine(ModelOptions(model=[*sys.argv[1:], "qwen2.5-coder-1.5b"][0]), Console(stderr=True))
    for half, name in ((rows[::2], "fitted"), (rows[1::2], "held out")):
        found = await recognized(engine, half)
        right = sum(count for (kind, taken), count in found.items() if kind == taken)
        table = Table(f"{name}: {right} of {len(half)} right", *(f"taken for a {kind}" for kind in KIND_BIAS))
        for kind in KIND_BIAS:
            table.add_row(kind, *(str(found[kind, taken]) for taken in KIND_BIAS))
        Console().print(table)
    engine.close()


if __name__ == "__main__":
    asyncio.run(main())
