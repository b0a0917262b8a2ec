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
    words = _known_words(sentence)
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


_KEPT = frozenset("timer timers alarm alarms reminder reminders notes".split())
_KEEPING = frozenset("remind cancel cancelled canceled".split())
_WRITING = frozenset("set add added delete deleted note noted wrote written".split())
_WRITTEN = _KEPT | {"down", "it", "list", "note", "that", "this", "them"}
_WILL = _BETWEEN | {"ll", "will", "m"}
_HAVE = frozenset("do don t have had currently still".split())
_IS = frozenset("is are s re has have isn aren will".split())
_UNDONE = frozenset("cancelled canceled deleted removed stopped set added saved".split())
_REACH = {"the": 2, "your": 3, "there": 4, "you": 5}
"""First words of reports, and the number of words after them among which the thing is named that is kept. A sentence is
held back for so many words."""
_WRITTEN_REACH = 5


def reports_task(sentence: str) -> bool | None:
    """See `agent.words.language.Language`."""
    words, is_over = _known_words(sentence), sentence.rstrip()[-1:] in (".", "!", ":")
    if not words:
        return None
    first, rest = words[0], words[1:]
    if first == "i":
        return _is_kept(list(dropwhile(_WILL.__contains__, rest)))
    if first in ("it", "that", "they"):
        ended = list(dropwhile((_IS | _BETWEEN).__contains__, rest))
        if not ended:
            return None
        if len(ended) == len(rest) or ended[0] not in _UNDONE:
            return False
        following = [word for word in ended[1:] if word != "now"]
        return following[0] == "for" if following else True if is_over else None
    if (reach := _REACH.get(first)) is None:
        return False
    if rest and ((first == "you" and rest[0] not in _HAVE) or (first == "there" and rest[0] not in _IS)):
        return False
    for place, word in enumerate(rest[:reach]):
        if word in _KEPT:
            following = rest[place + 1 : place + 2]
            return True if first != "the" else following[0] in _IS if following else None
    return None if len(rest) < reach else False


def _known_words(sentence: str) -> list[str]:
    """The words of a sentence after its interjections, without a last one that may go on."""
    words = words_of(sentence)
    if words and sentence[-1].isalnum():
        words.pop()
    return list(dropwhile(_INTERJECTIONS.__contains__, words))


def _is_kept(doing: Sequence[str]) -> bool | None:
    """Whether what somebody does keeps or drops a timer, an alarm, a reminder or a note; None if it is too short."""
    if not doing:
        return None
    if doing[0] not in _WRITING:
        return doing[0] in _KEEPING
    near = doing[1 : 1 + _WRITTEN_REACH]
    return True if not _WRITTEN.isdisjoint(near) else None if len(near) < _WRITTEN_REACH else False


def _begins_with_deed(words: Sequence[str], verbs: Collection[str]) -> bool | None:
    """Whether these begin with the past form of one of the verbs; None if they end before that."""
    rest = list(dropwhile(_BETWEEN.__contains__, words))
    if not rest:
        return None
    if (base := _BASES.get(rest[0])) is not None:
        return base in verbs
    return rest[0].endswith("ed") and any(are_related(verb, rest[0]) for verb in verbs)
