"""Sentences in which an assistant says that something has been done."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import dropwhile

from agent.matched_text import are_related, words_of

_INTERJECTIONS = frozenset("okay ok sure yes yeah alright right great done certainly and so then".split())
_BETWEEN = frozenset("have ve has had been just already now also successfully is being".split())
_DETERMINERS = frozenset("the your a this that".split())
_BE = frozenset("is are was were has have s".split())

_NAMED_BY, _LONGEST_SUBJECT = 2, 4
"""Words after which a thing has been named, and a subject ends: "the front door of yours"."""

_BASES = {
    "began": "begin", "booked": "book", "bought": "buy", "did": "do", "done": "do", "found": "find", "gave": "give",
    "given": "give", "kept": "keep", "left": "leave", "let": "let", "made": "make", "paid": "pay", "put": "put",
    "ran": "run", "run": "run", "sent": "send", "set": "set", "shut": "shut", "spent": "spend", "spoke": "speak",
    "taken": "take", "told": "tell", "took": "take", "wound": "wind", "written": "write", "wrote": "write",
}  # fmt: skip
"""Of past forms that do not end in -ed."""


def claims_deed(sentence: str, verbs: Collection[str], things: Collection[str]) -> bool | None:
    """See `agent.words.language.Language`."""
    words = words_of(sentence)
    if words and sentence[-1].isalnum():
        words.pop()  # it may go on
    words = list(dropwhile(_INTERJECTIONS.__contains__, words))
    if not words:
        return None
    if words[0] == "i":
        return _begins_with_deed(words[1:], verbs)
    if words[0] not in _DETERMINERS:
        return False
    is_named = False
    for place, word in enumerate(words[1 : 2 + _LONGEST_SUBJECT], 1):
        if word in _BE:
            return _begins_with_deed(words[place:], verbs) if is_named else False
        is_named = is_named or any(are_related(thing, word) for thing in things)
        if place == _NAMED_BY and not is_named:
            return False
    return None if len(words) < 2 + _LONGEST_SUBJECT else False


def _begins_with_deed(words: Sequence[str], verbs: Collection[str]) -> bool | None:
    """Whether these begin with the past form of one of the verbs; None if they end before that."""
    rest = list(dropwhile(_BETWEEN.__contains__, words))
    if not rest:
        return None
    if (base := _BASES.get(rest[0])) is not None:
        return base in verbs
    return rest[0].endswith("ed") and any(are_related(verb, rest[0]) for verb in verbs)
