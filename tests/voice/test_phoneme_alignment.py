"""Phonemes found in sound, and silence that belongs to pauses. The lab command measures it with real voices."""

from __future__ import annotations

from itertools import combinations_with_replacement

import numpy as np
import pytest

from voice import phoneme_alignment
from voice.phoneme_alignment import SOUNDS, _best_ends, aligned, sound_classes
from voice.pronunciation import Pronunciation

RATE = 22_050


def speech(*parts: tuple[str, float]) -> np.ndarray:
    """Silence or a vowel-like tone for so many seconds each."""
    rng, samples = np.random.default_rng(0), []
    for kind, seconds in parts:
        time = np.arange(int(seconds * RATE)) / RATE
        noise = np.diff(rng.standard_normal(len(time) + 1), n=1) * 0.05
        vowel = sum(0.1 / n * np.sin(2 * np.pi * 130 * n * time) for n in range(1, 9))
        samples.append({"a": vowel, "_": 1e-4 * noise}[kind])
    return np.concatenate(samples).astype(np.float32)


class PerfectClassifier:
    """Is certain of the class of every frame."""

    frames = np.full(len(SOUNDS), 6.0, np.float32)

    def __init__(self, *sounds: tuple[str, int]) -> None:
        classes = [sound_classes(symbol)[0][0] for symbol, count in sounds for _ in range(count)]
        self.scores = np.where(np.arange(len(SOUNDS)) == np.array(classes)[:, None], 0.0, -20.0).astype(np.float32)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        return self.scores


def test_phonemes_are_found_in_their_order_and_signs_of_stress_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    certain = PerfectClassifier((".", 20), ("s", 20), ("a", 30), ("s", 25), (".", 5))
    monkeypatch.setattr(phoneme_alignment, "classifier", lambda: certain)
    found = aligned(Pronunciation(np.zeros(RATE, np.float32), ["^", "s", "ˈ", "a", "s", ".", "$"], None), RATE)
    assert found.lengths is not None
    assert (found.lengths * 100 / RATE).round().tolist() == [20, 20, 0, 30, 25, 5, 0]


def test_a_space_without_a_pause_takes_a_little_of_both_words(monkeypatch: pytest.MonkeyPatch) -> None:
    certain = PerfectClassifier(("s", 50), ("a", 50))
    monkeypatch.setattr(phoneme_alignment, "classifier", lambda: certain)
    found = aligned(Pronunciation(np.zeros(RATE, np.float32), ["^", "s", " ", "a", "$"], None), RATE)
    assert found.lengths is not None
    _, before, space, after, _ = found.lengths * 1000 / RATE
    assert space == pytest.approx(42) and before + space + after == pytest.approx(1000, abs=30)


@pytest.mark.parametrize("states", [[0, 3, 0, 5, 0], [3, 5, 2], [0, 4], [4, 0, 6], [2], [0]])
def test_the_best_path_is_the_best_of_all_paths(states: list[int]) -> None:
    length, frames = 6, np.linspace(2.0, 4.0, len(SOUNDS), dtype=np.float32)
    scores = np.random.default_rng(len(states)).normal(0, 2, (length, len(SOUNDS))).astype(np.float32)

    def score(ends: tuple[int, ...]) -> float:
        total, start = 0.0, 0
        for state, end in zip(states, ends, strict=True):
            if end > start:
                total += scores[start:end, state].sum() + (end - start - 1) * np.log1p(-1 / frames[state])
                total += np.log(1 / frames[state])
            elif state:
                return -np.inf
            start = end
        return total

    paths = combinations_with_replacement(range(length + 1), len(states) - 1)
    best = max(((*path, length) for path in paths), key=score)
    assert tuple(_best_ends(scores, np.array(states), frames)) == best


@pytest.mark.parametrize("symbols", [[], ["^", "$"], ["ˈ"], list("^sasasasa$")])
def test_hardly_any_sound_still_has_lengths(symbols: list[str]) -> None:
    found = aligned(Pronunciation(np.zeros(RATE // 50, np.float32), symbols, None), RATE)
    assert found.lengths is not None and len(found.lengths) == len(symbols)


def test_silence_beside_punctuation_belongs_to_it() -> None:
    sound = speech(("_", 0.1), ("a", 0.2), ("_", 0.3), ("a", 0.2))
    lengths = np.array([0.05, 0.45, 0.05, 0.25]) * RATE  # the model prolongs the vowel, and begins the last one early
    spoken = Pronunciation(sound, ["^", "a", ",", "a"], lengths).with_quiet_pauses()
    assert spoken.lengths is not None
    assert spoken.lengths / RATE == pytest.approx([0.1, 0.2, 0.3, 0.2], abs=0.01)
