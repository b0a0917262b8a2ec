"""Which part of an aligned word is sound, and which is a pause. The alignment itself is tested in tests/e2e."""

from __future__ import annotations

import numpy as np
import pytest

from voice.audio.codec import RECOGNITION_RATE, Samples
from voice.word_alignment import Word, without_pauses


def audio(*stretches: tuple[float, float], seconds: float = 4.0, noise: float = 0.001) -> Samples:
    """Noise that is loud from `start` to `end` of each stretch."""
    rng = np.random.default_rng(0)
    samples = noise * rng.standard_normal(int(seconds * RECOGNITION_RATE))
    for start, end in stretches:
        first, last = int(start * RECOGNITION_RATE), int(end * RECOGNITION_RATE)
        samples[first:last] += 0.1 * rng.standard_normal(last - first)
    return samples.astype(np.float32)


@pytest.mark.parametrize("noise", [0.0, 0.001, 0.01])
@pytest.mark.parametrize(
    ("aligned", "sounding", "expected"),
    [
        ((0.0, 1.5), [(1.0, 1.5)], (1.0, 1.5)),  # a pause before
        ((1.0, 3.5), [(1.0, 1.5)], (1.0, 1.5)),  # and after
        ((0.5, 2.0), [(0.4, 0.55), (1.7, 2.4)], (1.7, 2.0)),  # the end of the previous word, then a pause
        ((1.0, 3.0), [(1.0, 1.4), (2.96, 3.4)], (1.0, 1.4)),  # a pause, then the next word
        ((0.5, 3.5), [(0.5, 0.9), (1.4, 1.8), (3.0, 3.5)], (0.5, 3.5)),  # digits in one word
        ((1.0, 1.5), [(0.9, 1.6)], (1.0, 1.5)),  # no pause at all
        ((1.0, 1.5), [(1.1, 1.45)], (1.0, 1.5)),  # soft consonants
        ((2.0, 2.5), [(0.5, 1.5)], (2.0, 2.5)),  # a word that cannot be heard
    ],
)
def test_pauses_are_not_part_of_words(
    aligned: tuple[float, float],
    sounding: list[tuple[float, float]],
    expected: tuple[float, float],
    noise: float,
) -> None:
    (word,) = without_pauses([Word("word", *aligned, ())], audio(*sounding, noise=noise))
    assert (word.start_s, word.end_s) == pytest.approx(expected, abs=0.04)


@pytest.mark.parametrize("samples", [audio(noise=0.1), audio(noise=0.0), np.zeros(10, np.float32)])
def test_where_speech_cannot_be_told_from_noise_the_alignment_stays(samples: Samples) -> None:
    words = [Word("word", 0.5, 3.0, ())]
    assert without_pauses(words, samples) == words


def test_a_word_of_a_later_chunk_is_shifted() -> None:
    word = Word("word", 0.5, 1.0, ()).shifted(20.0)
    assert (word.start_s, word.end_s) == (20.5, 21.0)
