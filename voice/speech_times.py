"""When each word of a clause is spoken, and which shapes the mouth makes, from the times of its phonemes.

A clause is written ("$5"), read aloud ("five dollars") and pronounced ("fˈaɪv dˈɑːlɚz"), and these do not have the same
number of words: numbers are several, and espeak-ng joins small ones ("of the" is "ʌvðə"). So words are matched twice,
in order, by how long they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import accumulate, groupby, pairwise
from typing import TypeVar

import numpy as np

from voice.audio.codec import OUTPUT_RATE, Samples
from voice.pronunciation import Phoneme
from voice.visemes import Viseme, visemes

_LETTERS_OF_PUNCTUATION = 0.5
"""What a word without letters or digits weighs."""

_DIGIT_LETTERS = 4.0
"""A digit is read aloud as a word."""

_MARKS = "ˈˌː"
"""Stress and length, which are no sounds of their own."""

_Timed = TypeVar("_Timed", "SpokenWord", Viseme)


@dataclass(frozen=True)
class SpokenWord:
    """A word of a text, as written and with its punctuation, and when it is spoken. What is not pronounced, such as a
    dash, ends where it starts."""

    text: str
    start_ms: float
    end_ms: float

    @property
    def is_heard(self) -> bool:
        """Whether it is pronounced."""
        return self.end_ms > self.start_ms


@dataclass(frozen=True)
class SpeechTimes:
    """The times of one clause, from the start of its audio; of a response, from the start of the response's.

    Attributes:
        words: one for each word of the text that `str.split` finds.
        visemes: without gaps between them. Before the first and after the last, the mouth is closed.
    """

    words: tuple[SpokenWord, ...] = ()
    visemes: tuple[Viseme, ...] = ()

    def after(self, start_ms: float, num_words: int = 0) -> SpeechTimes:
        """What is left when the audio is cut at its start, and the text by this many words."""
        words = (_moved(word, -start_ms) for word in self.words[num_words:])
        shapes = (_moved(shape, -start_ms) for shape in self.visemes if shape.end_ms > start_ms)
        return SpeechTimes(tuple(words), tuple(shapes))

    def later(self, ms: float) -> SpeechTimes:
        """The same after so much other audio."""
        return self.after(-ms) if ms else self


@dataclass(frozen=True)
class Speech:
    """One clause, spoken.

    Attributes:
        audio: [T] float32 at 24 kHz.
    """

    audio: Samples
    times: SpeechTimes = field(default=SpeechTimes())

    @property
    def ms(self) -> float:
        """Length of the audio."""
        return len(self.audio) * 1000 / OUTPUT_RATE


NO_SPEECH = Speech(np.zeros(0, np.float32))
"""Nothing is said."""


def speech_times(written: str, spoken: str, phonemes: Sequence[Phoneme]) -> SpeechTimes:
    """The times of a clause; none without phonemes.

    Args:
        spoken: the same as the synthesizer reads it.
        phonemes: what it has pronounced, with spaces between words.
    """
    if not phonemes:
        return SpeechTimes()
    words, read = written.split(), [word for word in spoken.split() if _letters(word) >= 1]
    pronounced = [
        _Unit(sum(one.symbol not in _MARKS for one in sounds), sounds[0].start_ms, sounds[-1].end_ms)
        for pause, group in groupby(phonemes, lambda phoneme: phoneme.is_pause)
        if not pause and (sounds := list(group))
    ]
    read_units = _matched([_letters(word) for word in read], pronounced)
    return SpeechTimes(tuple(_written_words(words, read, read_units)), tuple(visemes(phonemes)))


def first_words(text: str, count: int) -> str:
    """The beginning of a text, up to the end of this many words."""
    rest = text.split(maxsplit=count)[count:]
    return text[: len(text) - len(rest[0])].rstrip() if rest else text


@dataclass(frozen=True)
class _Unit:
    """A word with its times, and how long it is in letters or sounds."""

    weight: float
    start_ms: float
    end_ms: float


def _written_words(words: list[str], read: list[str], units: list[_Unit]) -> list[SpokenWord]:
    """The words as written, with the times of those that are read for them."""
    plain, read_plain = ([_plain(word) for word in side] for side in (words, read))
    times: list[tuple[float, float] | None] = [None] * len(words)
    for kind, first, last, start, end in SequenceMatcher(None, plain, read_plain, autojunk=False).get_opcodes():
        if kind == "insert" and first and times[first - 1] is not None:  # "5" is read "five o'clock"
            times[first - 1] = (times[first - 1][0], units[end - 1].end_ms)  # type: ignore[index]
        elif kind in ("equal", "replace"):
            heard = [n for n in range(first, last) if _letters(words[n]) >= 1] or list(range(first, last))
            matched = _matched([_letters(words[n]) for n in heard], units[start:end])
            for number, unit in zip(heard, matched, strict=True):
                times[number] = (unit.start_ms, unit.end_ms)
    spoken, position = [], units[0].start_ms if units else 0.0
    for word, span in zip(words, times, strict=True):
        start_ms, end_ms = span or (position, position)
        spoken.append(SpokenWord(word, start_ms, end_ms))
        position = end_ms
    return spoken


def _matched(weights: Sequence[float], units: Sequence[_Unit]) -> list[_Unit]:
    """Times for words of these weights that together last as long as `units`, in order: one word for several units, or
    several for one, so that their shares of the whole differ the least."""
    count, available = len(weights), len(units)
    if not count or not available:
        return [_Unit(weight, 0.0, 0.0) for weight in weights]
    if count == available:
        return list(units)
    totals = sum(weights), sum(unit.weight for unit in units)
    left = [0.0, *accumulate(weight / totals[0] for weight in weights)]
    right = [0.0, *accumulate(unit.weight / totals[1] for unit in units)]
    most = abs(count - available) + 1
    steps = [(1, 1), *((1, n) for n in range(2, most + 1)), *((n, 1) for n in range(2, most + 1))]
    costs = np.full((count + 1, available + 1), np.inf)
    chosen: dict[tuple[int, int], tuple[int, int]] = {}
    costs[0, 0] = 0.0
    for i in range(count):
        for j in range(available):
            if costs[i, j] == np.inf:
                continue
            for taken, used in steps:
                to = i + taken, j + used
                if to[0] > count or to[1] > available:
                    continue
                cost = costs[i, j] + abs((left[to[0]] - left[i]) - (right[to[1]] - right[j]))
                if cost < costs[to]:
                    costs[to], chosen[to] = cost, (taken, used)
    matched: list[_Unit] = []
    i, j = count, available
    while i and j:
        taken, used = chosen[i, j]
        matched[:0] = _divided(weights[i - taken : i], units[j - used].start_ms, units[j - 1].end_ms)
        i, j = i - taken, j - used
    return matched


def _divided(weights: Sequence[float], start_ms: float, end_ms: float) -> list[_Unit]:
    """Words that share a stretch of time."""
    ends = start_ms + (end_ms - start_ms) * np.cumsum([0.0, *weights]) / sum(weights)
    return [_Unit(weight, *span) for weight, span in zip(weights, pairwise(ends.tolist()), strict=True)]


def _letters(word: str) -> float:
    """How long it takes to say a word, about."""
    digits = sum(map(str.isdigit, word))
    return sum(map(str.isalpha, word)) + _DIGIT_LETTERS * digits or _LETTERS_OF_PUNCTUATION


def _plain(word: str) -> str:
    return "".join(filter(str.isalnum, word)).lower()


def _moved(timed: _Timed, ms: float) -> _Timed:
    return replace(timed, start_ms=max(0.0, timed.start_ms + ms), end_ms=max(0.0, timed.end_ms + ms))
