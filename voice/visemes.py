"""The shapes of a mouth that speaks: that of each phoneme, one of the 15 that avatars have (Oculus, OVR LipSync), with
its number among Azure's 22.

Sources: Meta's viseme reference for OVR LipSync; Microsoft's "Map phonemes to visemes" (Azure Speech).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from voice.pronunciation import Phoneme, sounds

SILENCE = ("sil", 0)

_GROUPS: tuple[tuple[str, int, str], ...] = (
    ("PP", 21, "pbmɓʘ"), ("FF", 18, "fvɱɸβʋⱱ"), ("TH", 19, "θ"), ("TH", 17, "ð"),
    ("DD", 19, "tdɾʈɖɗTʔ"), ("kk", 20, "kgɡŋqɢɟxχɣɴʛɠħʕ"), ("kk", 12, "hɦ"), ("CH", 16, "ʃʒʂʐɕʑçʝcɧʦʣ"),
    ("SS", 15, "szɬɮ"), ("nn", 19, "nɲɳ"), ("nn", 14, "lɫɭʎʟɺ"), ("RR", 13, "ɹrɻɽʀʁʙ"),
    ("aa", 1, "æəʌɐᵊa"), ("aa", 2, "ɑɒɶ"), ("E", 4, "eɛœø"), ("E", 5, "ɜɝɞɚ"), ("E", 1, "ɘɵ"),
    ("ih", 6, "iɪjɨᵻ"), ("oh", 3, "ɔ"), ("oh", 8, "oɤ"), ("ou", 4, "ʊ"), ("ou", 7, "uwʉɯyʏɥʍɰ"),
)  # fmt: skip
_SHAPES = {symbol: (shape, azure) for shape, azure, symbols in _GROUPS for symbol in symbols}

_PAIRS = {
    "aɪ": ("aa", "ih", 11), "aʊ": ("aa", "ou", 9), "ɔɪ": ("oh", "ih", 10), "oʊ": ("oh", "ou", 8), "əʊ": ("oh", "ou", 8),
    "eɪ": ("E", "ih", 4), "tʃ": ("CH", "CH", 16), "dʒ": ("CH", "CH", 16),
}  # fmt: skip
"""Two symbols that Azure has one shape for, and their shapes here."""

_JOINED_MS = 80.0
"""The mouth does not close between words for less."""


@dataclass(frozen=True)
class Viseme:
    """A shape of the mouth, and when it is held.

    Attributes:
        shape: `sil`, `PP`, `FF`, `TH`, `DD`, `kk`, `CH`, `SS`, `nn`, `RR`, `aa`, `E`, `ih`, `oh` or `ou`.
        azure_id: 0 to 21.
    """

    shape: str
    azure_id: int
    start_ms: float
    end_ms: float


def visemes(phonemes: Sequence[Phoneme]) -> list[Viseme]:
    """The shapes for these phonemes, without gaps between them. Neighbours that look alike are one."""
    heard: list[Phoneme] = []
    for phoneme in phonemes:
        if phoneme.is_pause and heard and heard[-1].is_pause:
            heard[-1] = replace(heard[-1], end_ms=phoneme.end_ms)
        else:
            heard += _sounds(phoneme)
    held: list[tuple[str, int]] = []
    while len(held) < len(heard):
        pair = "".join(sound.symbol for sound in heard[len(held) : len(held) + 2])
        if pair in _PAIRS:
            first, second, azure_id = _PAIRS[pair]
            held += ((first, azure_id), (second, azure_id))
        else:
            held.append(_shape(heard[len(held)], held[-1] if held else SILENCE))
    shapes: list[Viseme] = []
    for sound, shape in zip(heard, held, strict=True):
        if shapes and (shapes[-1].shape, shapes[-1].azure_id) == shape:
            shapes[-1] = replace(shapes[-1], end_ms=sound.end_ms)
        else:
            shapes.append(Viseme(*shape, sound.start_ms, sound.end_ms))
    return shapes


def _sounds(phoneme: Phoneme) -> list[Phoneme]:
    """One symbol for each sound."""
    symbols = sounds(phoneme.symbol)
    if len(symbols) == 1:
        return [phoneme]
    ends = np.linspace(phoneme.start_ms, phoneme.end_ms, len(symbols) + 1).tolist()
    return [Phoneme(symbol, start, end) for symbol, (start, end) in zip(symbols, pairwise(ends), strict=True)]


def _shape(sound: Phoneme, previous: tuple[str, int]) -> tuple[str, int]:
    """The shape of a sound. Signs of stress and length, and short pauses, prolong the one before."""
    if sound.symbol in _SHAPES:
        return _SHAPES[sound.symbol]
    silent = sound.is_pause and sound.end_ms - sound.start_ms > _JOINED_MS
    return SILENCE if silent else previous
