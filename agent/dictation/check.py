"""Checks that a cleaned-up dictation says nothing that its speaker did not say, and leaves out only what may be."""

from __future__ import annotations

import re
from collections import Counter

from agent.dictation.expectation import COUNTED, HESITATIONS
from agent.words.english.numbers import digits_for_words, tokens

_MAY_BE_ADDED = frozenset(["and"])
"""Joins the parts of an enumeration."""

_SOUNDS = HESITATIONS | frozenset(["mm", "mmm", "ah", "oh"])
"""Words that say nothing."""

_FILLERS = _SOUNDS | frozenset(
    "well so okay ok like basically actually just kind of sort you know i mean "
    "anyway really right literally yeah please comma period paragraph new line first second third fourth fifth "
    "firstly secondly thirdly number one two three four five 1 2 3 4 5 and then finally".split()
)
"""Words whose loss changes nothing, or which stand for punctuation or the numbers of a list."""

_CORRECTS = frozenset(
    "no sorry wait scratch strike make mean meant correction actually rather instead oops not better".split()
)
"""Words with which speakers correct themselves. What they correct may be left out."""

_CUES = frozenset("sorry wait scratch make mean meant correction actually rather oops".split())
"""Those that stand before what is right: "no" may also be an answer, and "not" stands before what is wrong."""

_CUE_PAIRS = frozenset(
    tuple(pair.split())
    for pair in (
        "scratch that", "strike that", "make that", "make it", "i mean", "or rather", "excuse me", "never mind",
    )
)  # fmt: skip
_SURE_CUES = frozenset("sorry correction meant oops actually".split())
_CUES_AT_PAUSES = frozenset(["no", "wait"])
"""What a number or a negation may be corrected after: two words, one, and one that begins a sentence or that a pause
follows."""

_MEANT = frozenset("right second first third fourth fifth".split())
"""Of the fillers, those that mean something unless there is a pause beside them: "turn right"."""

_NEGATIONS = frozenset("not never cannot nobody nothing none without neither nor".split())

_REACH = 8
"""Words after a cue within which the right number stands, and from it to a negation that it corrects."""

_SENTENCE, _PAUSE = "ǁ", "ǀ"
"""Words that stand for the end of a sentence, and for other punctuation. They are letters of no language that is
dictated."""

_LIGHT = frozenset("that it it's the a an to is was better".split())
"""Words around what a correction says, as in "make that Tuesday"."""

_KEPT_SHARE = 0.6
"""How much of what follows the last one must be there."""

_LOST_SHARE, _CORRECTED_SHARE = 0.35, 0.75
"""How many of the words that are no fillers may be left out, without and with a correction."""


def objection(raw: str, clean: str) -> str:
    """What is wrong with a cleaned-up text, a sentence; empty if nothing is.

    Args:
        raw: what was said.
    """
    written = _without_markers(clean)
    marked, kept = _words(_with_pauses(raw)), _words(written)
    said, cues = [word for word in marked if word not in (_SENTENCE, _PAUSE)], _cues(marked)
    if not kept and not _SOUNDS.issuperset(said):
        return "everything is missing"
    left = Counter(said)
    for word in kept:
        if left[word] > 0:
            left[word] -= 1
        elif word not in _MAY_BE_ADDED:
            return f"{word!r} was not said{' so often' if word in said else ''}"
    lost = _lost(said, kept) or _lost(said, [word for word in kept if word not in _MAY_BE_ADDED])
    if lost is None:
        return "the words are not in their order"
    has_items, pauses = written != clean, _pauses(marked)
    if number := _lost_number(said, lost, cues, pauses, has_items=has_items):
        return f"the number {number} is missing"
    if word := ("" if has_items else _lost_meant(said, lost, pauses)) or _lost_negation(said, lost, cues, pauses):
        return f"{word!r} is missing"
    corrects = not _CORRECTS.isdisjoint(said)
    right = [word for word in _corrected_to(said, cues) if word not in _FILLERS | _LIGHT]
    missing = [word for word in right if word not in kept]
    if len(missing) > (1 - _KEPT_SHARE) * len(right) or any(word[0].isdigit() for word in missing):
        return f"the correction to {' '.join(right)!r} is missing"
    content = [word for word in said if word not in _FILLERS]
    away = [word for word in content if word not in kept]
    if len(away) > max(1, (_CORRECTED_SHARE if corrects else _LOST_SHARE) * len(content)):
        return f"{len(away)} of {len(content)} words are missing"
    return ""


def _with_pauses(raw: str) -> str:
    sentences = re.sub(r"[.?!…]+(?=\s|$)", f" {_SENTENCE} ", raw)
    return re.sub(r"[,;:—–-]+(?=\s|$)", f" {_PAUSE} ", sentences)


def _cues(marked: list[str]) -> list[int]:
    """The places of the cues of corrections among the words.

    Args:
        marked: the words with their pauses.
    """
    cues, place, before = list[int](), 0, _SENTENCE
    for word, after in zip(marked, [*marked, _SENTENCE][1:], strict=True):
        if word in (_SENTENCE, _PAUSE):
            before = word
            continue
        pauses = before in (_SENTENCE, "oh") or after in (_SENTENCE, _PAUSE)
        if word in _SURE_CUES or (before, word) in _CUE_PAIRS or (word in _CUES_AT_PAUSES and pauses):
            cues.append(place)
        before, place = word, place + 1
    return cues


def _lost(said: list[str], kept: list[str]) -> list[bool] | None:
    """Which of the words that were said are not kept. Of words that were said again, the later ones are kept. None if
    the kept ones are not in their order."""
    lost, place = [True] * len(said), len(said)
    for word in reversed(kept):
        before = next((n for n in range(place - 1, -1, -1) if said[n] == word), None)
        if before is not None:
            place, lost[before] = before, False
        elif word not in _MAY_BE_ADDED:
            return None
    return lost


def _pauses(marked: list[str]) -> list[tuple[bool, bool]]:
    """Whether there is a pause before and after each word."""
    marks = (_SENTENCE, _PAUSE)
    neighbours = zip([_SENTENCE, *marked], marked, [*marked, _SENTENCE][1:], strict=False)
    return [(before in marks, after in marks) for before, word, after in neighbours if word not in marks]


def _counts_items(said: list[str], place: int, pauses: list[tuple[bool, bool]]) -> bool:
    """Whether the number at a place may number an item of a list: "number one", or "one" and a pause."""
    _, pauses_after = pauses[place]
    return said[place] in _FILLERS and (pauses_after or (place > 0 and said[place - 1] in COUNTED))


def _lost_number(
    said: list[str], lost: list[bool], cues: list[int], pauses: list[tuple[bool, bool]], *, has_items: bool
) -> str:
    """A number that was left out, although it is not corrected or said again; empty if there is none.

    Args:
        has_items: a list was written, whose numbers may be left out.
    """
    for place, word in enumerate(said):
        if lost[place] and word[0].isdigit():
            counts_items = has_items and _counts_items(said, place, pauses)
            if not (counts_items or _is_corrected(said, place, cues) or _is_said_again(said, place, lost, pauses)):
                return word
    return ""


def _lost_meant(said: list[str], lost: list[bool], pauses: list[tuple[bool, bool]]) -> str:
    """A word such as "right" that was left out, although it is no filler here; empty if there is none."""
    for place, word in enumerate(said):
        beside = (*said[max(0, place - 1) : place], *said[place + 1 : place + 2])
        if lost[place] and word in _MEANT and not any(pauses[place]) and not _FILLERS.issuperset(beside):
            near = range(max(0, place - _REACH), min(len(said), place + _REACH))
            if all(lost[n] or said[n] != word for n in near):
                return word
    return ""


def _is_said_again(said: list[str], place: int, lost: list[bool], pauses: list[tuple[bool, bool]]) -> bool:
    """Whether a lost number is kept a few words later, beside the same word: "I need 5, I need 5 apples"; or at once,
    and not as a digit among others: "I need 5, 5 apples"."""
    follows = said[place + 1 : place + 3]
    if pauses[place][1] and follows[:1] == [said[place]] and not lost[place + 1]:
        return len(follows) < 2 or not follows[1][0].isdigit()
    beside = {*said[max(0, place - 1) : place], *said[place + 1 : place + 2]}
    again = [n for n in range(place + 2, min(len(said), place + _REACH)) if said[n] == said[place] and not lost[n]]
    return any(not beside.isdisjoint((said[n - 1], *said[n + 1 : n + 2])) for n in again)


def _is_corrected(said: list[str], place: int, cues: list[int]) -> bool:
    """Whether another number is said after a cue instead of the one at a place: of several, each replaces one."""
    for cue in cues:
        numbers = sum(word[0].isdigit() for word in said[cue + 1 : cue + 1 + _REACH])
        if place < cue and _runs(said[place:cue]) <= numbers:
            return True
    return False


def _runs(words: list[str]) -> int:
    """How many numbers there are; adjacent ones are one, as those of a time."""
    are = [word[0].isdigit() for word in words]
    return sum(number and not before for number, before in zip(are, [False, *are], strict=False))


def _lost_negation(said: list[str], lost: list[bool], cues: list[int], pauses: list[tuple[bool, bool]]) -> str:
    """A negation that was left out, although it is not corrected or said again; empty if there is none."""
    lost = [*lost, False]
    for place, word in enumerate(said):
        negates = (
            word in _NEGATIONS or word.endswith("n't") or (word == "no" and place not in cues and not pauses[place][0])
        )
        if negates and lost[place] and not _is_restated(said, place, lost, cues):
            return word
    return ""


def _is_restated(said: list[str], place: int, lost: list[bool], cues: list[int]) -> bool:
    """Whether a lost negation belongs to what is corrected ("I don't want it, sorry, I want it"), to a correction ("Ask
    Ann. Not Ann, Bob."), or to a false start ("I don't, I don't want it")."""
    following = said[place + 1 : place + 1 + _REACH]
    if lost[place + 1]:
        is_corrected = any(abs(cue - place) <= _REACH for cue in cues)
        return is_corrected or said[place + 1] in said[max(0, place - 2) : place] or said[place] in following
    start = place
    while start and lost[start - 1]:
        start -= 1
    return said[place] in following and said[start] == said[place + 1]


def _corrected_to(said: list[str], cues: list[int]) -> list[str]:
    """What follows the last correction, up to what it says is wrong."""
    cue = max((*cues, *(number for number, word in enumerate(said) if word in _CUES)), default=len(said))
    after = said[cue + 1 :]
    return after[: after.index("not")] if "not" in after else after


def _words(text: str) -> list[str]:
    """Lower-case words, and numbers in digits however they are written."""
    return tokens(digits_for_words(text.lower()))


def _without_markers(text: str) -> str:
    """The text without the numbers and dashes before the items of its lists."""
    lines = text.splitlines()
    if len(lines) == 1:
        return text
    for number, line in enumerate(lines):
        first, _, rest = line.strip().partition(" ")
        marker = first in ("-", "•", "*") or (first[:-1].isdigit() and first[-1:] in ".)" and len(first) <= 3)
        lines[number] = rest if marker else line
    return "\n".join(lines)
