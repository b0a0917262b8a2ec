"""Which responses are worth a bigger model: a pure rule over what the user said last, and what the response may do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile

from agent.matched_text import for_patterns
from agent.remote.settings import Scope
from chat.types import Ask, Message

LONG_WORDS = 40
"""A question of this many words explains a problem; everyday questions have 5 to 20."""

MANY_OUTPUTS = 2
"""Results of tools that one answer combines from this number on count as several steps."""

_ASKED_FOR = re.compile(
    r"(?i)(?<!\bi )(?<!\bdo you )(?<!\bwe )(?<!\bthey )(?<!\bpeople )"
    r"\bthink (?:(?:very|really|extra|long and|a bit|a little|as) )*"
    r"(?:hard|harder|carefully|deeply|thoroughly|step by step|(?:this|it|that) through)\b|"
    r"\b(?:ask|use|try|consult)(?: (?:the|your|a))? (?:big|bigger|large|larger|smart|smarter|better|strong|stronger) "
    r"(?:language )?(?:model|brain|ai)\b"
)
"""How people ask for it: "think hard about …", "ask the big model …". Not "I think hard work pays"."""

_SEVERAL_STEPS = re.compile(
    r"(?i)\b(?:and|,) then\b|\bafter (?:that|which)\b|\bfirst\b.+\bthen\b|\bdepending on\b|\band also\b|"
    r"\b(?:if|when|whether)\b.+\b(?:remind|set|write|note|send|book|order|cancel|call|add|tell|let me know)\b"
)
"""Requests whose later part needs the result of an earlier one, or is another request."""


def reason_for_remote(scope: Scope, ask: Ask) -> str | None:
    """Why a response comes from the bigger model, in a few words; None for the local one. Where its first step goes,
    the later ones go as well."""
    if scope == "all":
        return "all questions"
    said = next((message.content for message in reversed(ask.messages) if message.role == "user"), "")
    plain = for_patterns(said)
    if _ASKED_FOR.search(plain):
        return "asked for"
    if ask.effort == "high":
        return "high effort"
    if len(said.split()) >= LONG_WORDS:
        return "a long question"
    if ask.tools and (_SEVERAL_STEPS.search(plain) or _num_outputs(ask.messages) >= MANY_OUTPUTS):
        return "several steps"
    return None


def _num_outputs(messages: Sequence[Message]) -> int:
    """Results of tools since the user last spoke."""
    since = takewhile(lambda message: message.role != "user", reversed(messages))
    return sum(message.role == "tool" for message in since)
