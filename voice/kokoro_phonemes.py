"""English text as the input of Kokoro: espeak-ng's phonemes, rewritten in the notation that Kokoro was trained on."""

from __future__ import annotations

from functools import cache
from typing import Literal

from piper.phonemize_espeak import EspeakPhonemizer

from voice.lexicon import PHONEMES

Accent = Literal["en-us", "en-gb"]

_ESPEAK_VOICES: dict[Accent, str] = {"en-us": "en-us", "en-gb": "en"}
"""espeak-ng calls British English `en`."""

_RUNS = {
    1: ";:,.!?", 9: "—…\"()“” \u0303ʣʥʦʨᵝꭧAI", 31: "O", 33: "Q", 35: "ST", 39: "W", 41: "Yᵊabcdef",
    50: "hijklmnopqrstuvwxyzɑɐɒæ", 75: "βɔɕç", 80: "ɖðʤə", 85: "ɚɛɜ", 90: "ɟ", 92: "ɡ", 99: "ɥ", 101: "ɨɪʝ",
    110: "ɯɰŋɳɲɴø", 118: "ɸθœ", 123: "ɹ", 125: "ɾɻ", 128: "ʁɽʂʃʈʧ", 135: "ʊʋ", 138: "ʌɣɤ", 142: "χʎ", 147: "ʒʔ",
    156: "ˈˌː", 162: "ʰ", 164: "ʲ", 169: "↓", 171: "→↗↘", 177: "ᵻ",
}  # fmt: skip
"""The symbols of Kokoro v1.0 (its config.json), as runs of consecutive ids by their first id."""

_IDS = {symbol: first + n for first, run in _RUNS.items() for n, symbol in enumerate(run)}
_SYMBOLS = {number: symbol for symbol, number in _IDS.items()}

SPACE = _IDS[" "]

_BOTH_ACCENTS = (
    ("ʔn\u0329", "tn"), ("ʔˌn\u0329", "tn"), ("n\u0329", "ᵊn"), ("aɪ", "I"), ("aʊ", "W"), ("eɪ", "A"), ("ɔɪ", "Y"),
    ("dʒ", "ʤ"), ("tʃ", "ʧ"), ("əl", "ᵊl"), ("ɚ", "əɹ"), ("ɐ", "ə"), ("r", "ɹ"), ("x", "k"), ("ç", "k"), ("ɬ", "l"),
)  # fmt: skip
_NOTATION: dict[Accent, tuple[tuple[str, str], ...]] = {
    "en-us": (
        *_BOTH_ACCENTS,
        ("oʊ", "O"), ("ɜːɹ", "ɜɹ"), ("ɜː", "ɜɹ"), ("ɪə", "iə"), ("ː", ""), ("o", "ɔ"), ("ɾ", "T"), ("ʔ", "t"),
    ),
    "en-gb": (
        *_BOTH_ACCENTS,
        ("eə", "ɛː"), ("iə", "ɪə"), ("əʊ", "Q"), ("e", "A"), ("o", "ɔ"), ("ɾ", "T"), ("ʔ", "t"),
    ),
}  # fmt: skip
"""Replacements in this order. One letter stands for a diphthong; Americans flap their t (`T`). As misaki does it, the
phonemizer of Kokoro's authors (github.com/hexgrad/misaki, espeak.py)."""


@cache
def _espeak() -> EspeakPhonemizer:
    return EspeakPhonemizer()


def phonemes(text: str, accent: Accent) -> str:
    """The phonemes of `text` in Kokoro's notation, with its punctuation. It may contain phonemes (`PHONEMES`)."""
    parts = PHONEMES.split(text)
    for number in range(0, len(parts), 2):  # the others are phonemes
        sentences = _espeak().phonemize(_ESPEAK_VOICES[accent], parts[number]) if parts[number].strip() else []
        parts[number] = " ".join("".join(sentence).strip() for sentence in sentences)
    spoken = " ".join(filter(None, parts))
    for symbols, replacement in _NOTATION[accent]:
        spoken = spoken.replace(symbols, replacement)
    return spoken


def phoneme_ids(text: str, accent: Accent) -> list[int]:
    """The model's input for `text`, without padding. Symbols that Kokoro does not know are left out."""
    return [_IDS[symbol] for symbol in phonemes(text, accent) if symbol in _IDS]


def symbols(ids: list[int]) -> list[str]:
    """The phonemes of these ids."""
    return [_SYMBOLS[number] for number in ids]
