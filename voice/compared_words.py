"""Compares the words of transcripts, whatever their case and punctuation: what two of them have in common, and what one
repeats."""

from __future__ import annotations

import re
from collections.abc import Sequence


def remove_repetitions(text: str, *, strict: bool = False) -> str:
    """Cut the text after the first occurrence of a phrase that a runaway decoder repeats.

    Args:
        strict: two occurrences of a phrase of three or more words already count as a loop. For text that the decoder
            did not close with a timestamp, or that is faster than people speak. Otherwise people may repeat
            themselves: a loop is three occurrences, or six of a single word.
    """
    words = text.split()
    plain = [normalized(word) for word in words]
    for length in range(1, len(words) // 2 + 1):
        needed = 6 if length == 1 else 2 if strict and length >= 3 else 3
        for start in range(len(words) - length * needed + 1):
            phrase = plain[start : start + length]
            if all(plain[start + n * length : start + (n + 1) * length] == phrase for n in range(1, needed)):
                return " ".join(words[: start + length])
    return text


def normalized(word: str) -> str:
    """The word without punctuation and capitals."""
    return re.sub(r"[^\w']", "", word.lower())


def same_words(a: Sequence[str], b: Sequence[str]) -> bool:
    """Whether these are the same words."""
    return [normalized(word) for word in a] == [normalized(word) for word in b]


def common_prefix(new: Sequence[str], old: Sequence[str]) -> list[str]:
    """The first words that both have, as `new` spells them."""
    count = 0
    for a, b in zip(new, old, strict=False):
        if normalized(a) != normalized(b):
            break
        count += 1
    return list(new[:count])
