"""What a synthesizer delivers for a text: the sound, and the phonemes in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from voice.audio.codec import AUDIBLE_AMPLITUDE, Samples

_PAUSES = frozenset(' .,;:!?…—–()"“”«»¡¿$^_-')
"""Spaces, what a synthesizer pauses at, and the signs for both ends."""

_TWO_SOUNDS = {
    "I": "aɪ", "W": "aʊ", "Y": "ɔɪ", "O": "oʊ", "Q": "əʊ", "A": "eɪ", "ʧ": "tʃ", "ʤ": "dʒ", "ʦ": "ts", "ʣ": "dz",
}  # fmt: skip

BEGINNING, END = "^", "$"
"""The silence at both ends of what is synthesized at once."""


@dataclass(frozen=True)
class Phoneme:
    """A symbol that a synthesizer has read, and its stretch of the audio. Signs of stress and length, spaces and
    punctuation count as well."""

    symbol: str
    start_ms: float
    end_ms: float

    @property
    def is_pause(self) -> bool:
        """Whether it is a space or punctuation, which is not heard."""
        return is_pause(self.symbol)


@dataclass(frozen=True)
class Pronunciation:
    """A text, pronounced.

    Attributes:
        samples: [T] float32 at the synthesizer's rate, with silence around it.
        symbols: what was pronounced, in order.
        lengths: samples of each symbol, together about T; None if the synthesizer does not say.
    """

    samples: Samples
    symbols: Sequence[str]
    lengths: NDArray[np.float64] | None

    def phonemes(self, sound: slice, rate: int) -> list[Phoneme]:
        """The phonemes in a part of the samples, from its start. Those outside last for no time."""
        assert self.lengths is not None
        ends = np.concatenate(([0.0], np.cumsum(self.lengths)))
        bounds = ((np.clip(ends, sound.start, sound.stop) - sound.start) * 1000 / rate).tolist()
        return [Phoneme(symbol, *span) for symbol, span in zip(self.symbols, pairwise(bounds), strict=True)]

    def with_quiet_pauses(self) -> Pronunciation:
        """The same, where silence next to punctuation belongs to it: some models prolong the sound before a pause."""
        assert self.lengths is not None
        lengths, ends = self.lengths.copy(), np.cumsum(self.lengths).astype(np.int64)
        pauses = [is_pause(symbol) and symbol != " " for symbol in self.symbols]
        for pause, (left, right) in enumerate(pairwise(pauses), 1):
            if left == right:
                continue
            sound, silence = (pause - 1, pause) if right else (pause, pause - 1)
            stretch = self.samples[ends[sound] - int(self.lengths[sound]) : ends[sound]]
            heard = np.flatnonzero(np.abs(stretch) >= AUDIBLE_AMPLITUDE)
            if heard.size:
                quiet = len(stretch) - 1 - heard[-1] if right else heard[0]
                lengths[sound] -= quiet
                lengths[silence] += quiet
        return replace(self, lengths=lengths)


def joined(parts: Sequence[Pronunciation]) -> Pronunciation:
    """Parts that are spoken one after the other."""
    lengths = [part.lengths for part in parts if part.lengths is not None]
    return Pronunciation(
        np.concatenate([np.zeros(0, np.float32), *(part.samples for part in parts)]),
        [symbol for part in parts for symbol in part.symbols],
        np.concatenate([np.zeros(0), *lengths]) if len(lengths) == len(parts) else None,
    )


def is_pause(symbol: str) -> bool:
    """Whether a symbol is a space or punctuation."""
    return symbol in _PAUSES


def sounds(symbol: str) -> str:
    """The sounds that a symbol stands for, one sign each: Kokoro has letters for two."""
    return _TWO_SOUNDS.get(symbol, symbol)
