"""The built-in tools for notes."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from agent.tools.function_tool import Caller, ServerTool, Spoken, function_tool, tool
from agent.tools.user_data import UserData

_MAX_READ = 10
"""Notes that are read out at once: the newest."""


def note_tools(data: UserData, now: Callable[[], datetime]) -> list[ServerTool]:
    """The tools, on a clock that returns the time."""

    @tool(in_programs="called")
    def write_note(text: str, caller: Caller) -> Spoken:
        """Write down a note or an entry of a list."""
        if not text.strip():
            raise ValueError("The note is empty: ask the user what to write down.")
        data.add_note(caller.owner, text.strip(), now().timestamp())
        return Spoken(f"I wrote down: {text.strip().rstrip('.!?')}.")

    @tool(read_only=True, in_programs="called")
    def read_notes(caller: Caller, about: str = "") -> Spoken:
        """Read out the notes and lists."""
        words = [word for word in about.split() if not re.fullmatch(r"(my|the|notes?|lists?)", word.lower())]
        notes = data.notes(caller.owner)
        found = [note for note in notes if all(word.lower() in note.lower() for word in words)]
        if not found:
            return Spoken(f"You have no notes about {' '.join(words)}." if notes else "You have no notes.")
        shown = found[-_MAX_READ:]
        head = "Your note says: " if len(found) == 1 else f"You have {len(found)} notes. "
        return Spoken(head + " ".join(f"{note.rstrip('.!?')}." for note in shown))

    @tool(consequential=True, question="Shall I delete your notes?", in_programs="called")
    def delete_notes(caller: Caller) -> Spoken:
        """Delete all notes."""
        removed = data.remove_notes(caller.owner)
        return Spoken("Your notes are deleted." if removed else "You have no notes.")

    return [function_tool(each) for each in (write_note, read_notes, delete_notes)]
