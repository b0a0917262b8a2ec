"""The built-in tools for notes."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from agent.matched_text import is_cut
from agent.tools.function_tool import Caller, ServerTool, Spoken, function_tool, tool
from agent.tools.user_data import Note, UserData

_DICTATION = re.compile(
    r"(?i)^(?:please |can you |could you |would you )*(?:write down|write|note down|note|take a note|make a note|"
    r"jot down|add|put down|put|remember|record|save)(?: please)?"
    r"(?!(?: down)? (?:it|that|this|them|the (?:result|answer))(?: down)?\W*$)(?: that| of)? ?[:,.]? (\S.*)$"
)
"""A command to write something down, and what. "Write that down" does not say what."""

_TO_BE_WRITTEN = (
    r"\b(a note|note (that|down)|lists?|remember (that|this)|jot|record|add|put|save|"
    r"write (it |that |this |these |them )?down)\b|"
    r"^\W*((please|and|then|also|now|can you|could you|would you)\W+)*write (?!(me )?(an?|some|the)\b)"
)
"""What asks for a note: not "what did Tom write?", nor "write a poem"."""

_TO_BE_READ = (
    r"\bnotes\b|\b(a|the|my|our|that|this|any|what|which|last|first|newest) note\b|\blists?\b|"
    r"\bdid (i|you) (write|note)\b|\bi (wrote|told you)\b"
)
"""What asks for notes that were written: not "please note 020 …"."""

_MAX_READ = 10
"""Notes that are read out at once: the newest."""


def note_tools(data: UserData, now: Callable[[], datetime]) -> list[ServerTool]:
    """The tools, on a clock that returns the time."""

    @tool(said=_TO_BE_WRITTEN)
    def write_note(text: str, caller: Caller) -> Spoken:
        """Write down a note or an entry of a list."""
        if (dictated := _DICTATION.match(caller.said)) and not is_cut(caller.said):
            text = dictated[1]  # small models shorten and change what they write down
        if not text.strip():
            raise ValueError("The note is empty: ask the user what to write down.")
        data.add_note(caller.owner, text.strip(), now().timestamp())
        return Spoken(f"I wrote down: {text.strip().rstrip('.!?')}.")

    @tool(read_only=True, said=_TO_BE_READ)
    def read_notes(caller: Caller, about: str = "") -> Spoken:
        """Read out the notes and lists."""
        notes, about = data.notes(caller.owner), _topic(caller, about)
        found = _about(notes, about)
        if not found:
            return Spoken(f"You have no notes about {about.strip()}." if notes else "You have no notes.")
        shown = found[-_MAX_READ:]
        head = "Your note says: " if len(found) == 1 else f"You have {len(found)} notes. "
        return Spoken(head + " ".join(f"{note.text.rstrip('.!?')}." for note in shown))

    @tool(
        consequential=True,
        question="Shall I delete your notes?",
        said=r"\b(delete|remove|clear|erase|forget)\b.*\b(notes?|lists?)\b",
    )
    def delete_notes(caller: Caller) -> Spoken:
        """Delete all notes."""
        notes = data.notes(caller.owner)
        for note in notes:
            data.remove_note(note.id)
        return Spoken("Your notes are deleted." if notes else "You have no notes.")

    return [function_tool(each) for each in (write_note, read_notes, delete_notes)]


def _topic(caller: Caller, about: str) -> str:
    """What notes are asked for, if the user named it."""
    words = [word for word in caller.named(about).split() if not re.fullmatch(r"(my|the|notes?|lists?)", word.lower())]
    return " ".join(words)


def _about(notes: list[Note], about: str) -> list[Note]:
    """The notes that have every word of `about`."""
    words = about.lower().split()
    return [note for note in notes if all(word in note.text.lower() for word in words)]
