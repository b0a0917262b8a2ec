"""What asks for a note."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.matched_text import for_patterns
from agent.tools.function_tool import Caller
from agent.tools.notes import note_tools
from agent.tools.user_data import UserData


@pytest.mark.parametrize(
    ("said", "is_offered"),
    [
        ("Write down that the plumber comes on Friday.", True),
        ("Could you write buy milk on my list?", True),
        ("Please, write buy milk.", True),
        ("And write that down.", True),
        ("Write a note that I owe Anna four euros.", True),
        ("Remember that I parked on level two.", True),
        ("What did Tom write about lunch?", False),
        ("Who wrote Hamlet, and why did he write it?", False),
        ("Write me a poem about the sea.", False),
        ("How do I write the date in French?", False),
    ],
)
def test_a_note_is_written_where_the_user_asks_for_one(tmp_path: Path, said: str, is_offered: bool) -> None:
    data = UserData(tmp_path / "data.sqlite")
    write_note, *_ = note_tools(data, lambda: datetime(2026, 11, 23, tzinfo=UTC))
    assert write_note.declaration.name == "write_note"
    assert bool(re.search(write_note.traits.said, said, re.IGNORECASE)) == is_offered


@pytest.mark.parametrize(
    ("said", "is_offered"),
    [
        ("Read me my notes.", True),
        ("What was the last note about?", True),
        ("What's on my shopping list?", True),
        ("What did I write down about the car?", True),
        ("Please note 020, 7946, 1833.", False),
        ("Note that the meeting moved.", False),
    ],
)
def test_notes_are_read_where_the_user_asks_for_them(tmp_path: Path, said: str, is_offered: bool) -> None:
    tools = note_tools(UserData(tmp_path / "data.sqlite"), lambda: datetime(2026, 11, 23, tzinfo=UTC))
    (read_notes,) = (tool for tool in tools if tool.declaration.name == "read_notes")
    assert bool(re.search(read_notes.traits.said, said, re.IGNORECASE)) == is_offered


async def test_a_dictation_that_is_too_long_for_patterns_is_written_down_in_full(tmp_path: Path) -> None:
    data = UserData(tmp_path / "data.sqlite")
    write_note, *_ = note_tools(data, lambda: datetime(2026, 11, 23, tzinfo=UTC))
    text = " ".join(f"word{number}" for number in range(120))
    await write_note.run({"text": text}, Caller("anna", for_patterns(f"Write down {text}")))
    assert [note.text for note in data.notes("anna")] == [text]
