"""Checks that a cleaned-up dictation says nothing that its speaker did not say, and leaves out only what may be."""

from __future__ import annotations

from collections import Counter

from agent.words.english.numbers import digits_for_words, tokens

_MAY_BE_ADDED = frozenset(["and"])
"""Joins the parts of an enumeration."""

_FILLERS = frozenset(
    "um uh er erm uhm hm hmm mm mmm ah oh well so okay ok like basically actually just kind of sort you know i mean "
    "anyway really right literally yeah please comma period paragraph new line first second third fourth fifth "
    "firstly secondly thirdly number one two three four five 1 2 3 4 5 and then finally".split()
)
"""Words whose loss changes nothing, or which stand for punctuation or the numbers of a list."""

_CORRECTS = frozenset(
    "no sorry wait scratch make mean meant correction actually rather instead oops not better".split()
)
"""Words with which speakers correct themselves. What they correct may be left out."""

_CUES = frozenset("sorry wait scratch make mean meant correction actually rather oops".split())
"""Those that stand before what is right: "no" may also be an answer, and "not" stands before what is wrong."""

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
    said, kept = _words(raw), _words(_without_markers(clean))
    left = Counter(said)
    for word in kept:
        if left[word] > 0:
            left[word] -= 1
        elif word not in _MAY_BE_ADDED:
            return f"{word!r} was not said{' so often' if word in said else ''}"
    corrects = not _CORRECTS.isdisjoint(said)
    lost_numbers = [word for word in said if word[0].isdigit() and word not in kept and word not in _FILLERS]
    if lost_numbers and not corrects:
        return f"the number {lost_numbers[0]} is missing"
    right = [word for word in _corrected_to(said) if word not in _FILLERS | _LIGHT]
    missing = [word for word in right if word not in kept]
    if len(missing) > (1 - _KEPT_SHARE) * len(right) or any(word[0].isdigit() for word in missing):
        return f"the correction to {' '.join(right)!r} is missing"
    content = [word for word in said if word not in _FILLERS]
    lost = [word for word in content if word not in kept]
    if len(lost) > max(1, (_CORRECTED_SHARE if corrects else _LOST_SHARE) * len(content)):
        return f"{len(lost)} of {len(content)} words are missing"
    return ""


def _corrected_to(said: list[str]) -> list[str]:
    """What follows the last correction, up to what it says is wrong."""
    cue = max((number for number, word in enumerate(said) if word in _CUES), default=len(said))
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
