"""The words that describe a tool."""

from __future__ import annotations

from agent.tools.words import describing_stems, stems
from chat.types import Tool


def test_words_are_compared_without_their_endings() -> None:
    assert stems("Texting the lampLights of our flats?") == stems("text lamp light our flat") == [
        "text", "lamp", "light", "our", "flat",
    ]  # fmt: skip


def test_a_tool_is_described_by_its_name_its_parameters_and_their_values() -> None:
    room = {"type": "string", "description": "Which room.", "enum": ["kitchen", "attic"]}
    rooms = {"type": "array", "items": {"type": "string", "enum": ["cellar"]}}
    tool = Tool("switch_lamp", "Dims lights.", {"type": "object", "properties": {"room": room, "others": rooms}})
    found = describing_stems(tool)
    assert set(found) == {"switch", "lamp", "dim", "light", "room", "kitchen", "attic", "other", "cellar"}
    assert found["lamp"] > found["light"]
