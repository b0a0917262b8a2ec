"""Notes and lists, which belong to their owner."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from agent.tools.function_tool import Caller, ServerTool
from agent.tools.notes import note_tools
from agent.tools.user_data import UserData

ANN, BOB = Caller("ann"), Caller("bob")


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, ServerTool]:
    data = UserData(tmp_path / "data.sqlite")
    return {tool.name: tool for tool in note_tools(data, lambda: datetime(2026, 11, 23, tzinfo=UTC))}


async def test_notes_are_written_read_and_deleted(tools: dict[str, ServerTool]) -> None:
    assert (await tools["write_note"].run({"text": " Buy milk. "}, ANN)).speech == "I wrote down: Buy milk."
    await tools["write_note"].run({"text": "The code is 4711"}, ANN)
    assert (await tools["read_notes"].run({}, ANN)).speech == "You have 2 notes. Buy milk. The code is 4711."
    assert (await tools["read_notes"].run({}, BOB)).speech == "You have no notes."
    assert tools["delete_notes"].traits.consequential
    assert (await tools["delete_notes"].run({}, BOB)).speech == "You have no notes."
    assert (await tools["delete_notes"].run({}, ANN)).speech == "Your notes are deleted."
    assert (await tools["read_notes"].run({}, ANN)).speech == "You have no notes."
    with pytest.raises(ValueError, match="The note is empty"):
        await tools["write_note"].run({"text": " "}, ANN)


async def test_notes_are_found_by_their_words(tools: dict[str, ServerTool]) -> None:
    for text in ("shopping list: bread and milk", "The plumber comes on Monday."):
        await tools["write_note"].run({"text": text}, ANN)
    for about, answer in (
        ("my shopping list", "Your note says: shopping list: bread and milk."),
        ("Plumber", "Your note says: The plumber comes on Monday."),
        ("bread plumber", "You have no notes about bread plumber."),
        ("the notes", "You have 2 notes. shopping list: bread and milk. The plumber comes on Monday."),
    ):
        assert (await tools["read_notes"].run({"about": about}, ANN)).speech == answer


async def test_a_long_dictation_is_written_down_in_full_and_only_the_newest_notes_are_read(
    tools: dict[str, ServerTool],
) -> None:
    text = " ".join(f"word{number}" for number in range(120))
    assert (await tools["write_note"].run({"text": text}, ANN)).speech == f"I wrote down: {text}."
    for number in range(10):
        await tools["write_note"].run({"text": f"Note {number}."}, ANN)
    read = (await tools["read_notes"].run({}, ANN)).speech
    assert read.startswith("You have 11 notes. Note 0. Note 1.") and read.endswith("Note 9.")
