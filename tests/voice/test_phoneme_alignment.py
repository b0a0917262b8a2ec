"""Phonemes found in sound, and silence that belongs to pauses. The lab command measures it with real voices."""

from __future__ import annotations

import numpy as np
import pytest

from voice.phoneme_alignment import aligned
from voice.pronunciation import Pronunciation

RATE = 22_050


def hiss_and_vowel(*parts: tuple[str, float]) -> np.ndarray:
    """Silence, an s-like noise or a vowel-like tone for so many seconds each."""
    rng, samples = np.random.default_rng(0), []
    for kind, seconds in parts:
        time = np.arange(int(seconds * RATE)) / RATE
        noise = np.diff(rng.standard_normal(len(time) + 1), n=1) * 0.05
        vowel = sum(0.1 / n * np.sin(2 * np.pi * 130 * n * time) for n in range(1, 9))
        samples.append({"s": noise, "a": vowel, "_": 1e-4 * noise}[kind])
    return np.concatenate(samples).astype(np.float32)


def test_a_vowel_between_hisses_is_found() -> None:
    sound = hiss_and_vowel(("_", 0.2), ("s", 0.2), ("a", 0.3), ("s", 0.25), ("_", 0.2))
    found = aligned(Pronunciation(sound, ["^", "s", "ˈ", "a", "s", ".", "$"], None), RATE)
    assert found.lengths is not None
    ends = dict(zip("012345", np.cumsum(found.lengths) / RATE, strict=False))
    assert ends["0"] == pytest.approx(0.2, abs=0.03) and ends["1"] == pytest.approx(0.4, abs=0.03)
    assert ends["3"] == pytest.approx(0.7, abs=0.03) and ends["4"] == pytest.approx(0.95, abs=0.03)
    assert found.lengths.sum() == pytest.approx(len(sound), abs=RATE / 100)


@pytest.mark.parametrize("symbols", [[], ["^", "$"], ["ˈ"], list("^sasasasa$")])
def test_hardly_any_sound_still_has_lengths(symbols: list[str]) -> None:
    found = aligned(Pronunciation(np.zeros(RATE // 50, np.float32), symbols, None), RATE)
    assert found.lengths is not None and len(found.lengths) == len(symbols)


def test_silence_beside_punctuation_belongs_to_it() -> None:
    sound = hiss_and_vowel(("_", 0.1), ("a", 0.2), ("_", 0.3), ("a", 0.2))
    lengths = np.array([0.05, 0.45, 0.05, 0.25]) * RATE  # the model prolongs the vowel, and begins the last one early
    spoken = Pronunciation(sound, ["^", "a", ",", "a"], lengths).with_quiet_pauses()
    assert spoken.lengths is not None
    assert spoken.lengths / RATE == pytest.approx([0.1, 0.2, 0.3, 0.2], abs=0.01)
