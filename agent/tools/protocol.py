"""How the functions are called that run where the session runs, and what they return. Functions that the client runs
are not part of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

PENDING_OUTPUT = "The function is still running. Its result will follow."
"""What the language model reads as the output of a call whose function has not returned yet."""

HOLDING_PHRASE = "One moment, please."
"""Spoken while a tool runs that has no phrase of its own."""

InPrograms = Literal["", "called", "computed"]


@dataclass(frozen=True)
class Announcement:
    """A text to say when nobody speaks, such as that a timer is due, and what to call once the user has heard some of
    it."""

    text: str
    on_heard: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class ToolTraits:
    """How calls of a tool are made.

    Attributes:
        read_only: it changes nothing, so it may run before it is certain that the turn is over.
        consequential: it is only called once the user has agreed.
        holding_phrase: spoken when a call takes longer than 400 ms.
        timeout_s: how long a call may take.
        question: asked before a consequential call; may name arguments in braces ("Shall I send {text}?").
        opens_calls: whether phone calls begin with it. It takes no arguments then.
        in_programs: whether programs (`agent/program`) may call it, with texts and numbers, or compute by themselves
            what it does; otherwise it is no part of them.
        outgoing: the arguments that leave this machine. They keep only words that the user or the assistant has said.
    """

    read_only: bool = False
    consequential: bool = False
    holding_phrase: str = HOLDING_PHRASE
    timeout_s: float = 20.0
    question: str = ""
    opens_calls: bool = False
    in_programs: InPrograms = ""
    outgoing: tuple[str, ...] = ()


@dataclass(frozen=True)
class ToolOutput:
    """What a call returned.

    Attributes:
        text: for the language model.
        speech: what the user hears, word for word; if empty, the language model responds to `text`.
        failed: whether the call failed; `text` says why.
    """

    text: str
    speech: str = ""
    failed: bool = False
