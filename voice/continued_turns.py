"""Turns that go on after a response was too early: the user paused, and spoke again before they could have heard it."""

from __future__ import annotations

from agent.words.language import language
from voice import endpointing

LONGEST_BREAK_MS = 2500
"""From the end of a turn until the user speaks again, if they go on with it: they waited for nothing."""

UNHEARD_MS = 400.0
"""Nobody reacts to less of a response: whoever speaks then goes on with what they were saying."""


def is_continuation(text: str) -> bool:
    """Whether the words of a turn may belong to the turn before, after which nothing was heard. What ends a response
    and what listeners say stand alone."""
    return not (endpointing.is_backchannel(text) or language("en").is_dismissal(text))


def joined(before: str, text: str) -> str:
    """Two parts of a turn as one text. The recognizer ends each part as a sentence, also "Turn off the."."""
    begun = before.rstrip(".…-–—, ") if endpointing.is_unfinished(before) else before
    return f"{begun} {text}"
