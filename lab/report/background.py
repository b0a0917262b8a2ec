"""Background noise for spoken turns: pink noise and babble, [T] float32 at 24 kHz, played in a loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from voice.audio.codec import OUTPUT_RATE, Samples
from voice.audio.resampling import resample

_SECONDS = 12
"""Length of the loop: longer than nearly every turn."""

_LOWEST_HZ = 50.0
"""Pink noise has no energy below this frequency: microphones do not pick it up."""


def pink(seed: int) -> Samples:
    """Noise with equal power in every octave, RMS 1. It loops seamlessly."""
    rng = np.random.default_rng(seed)
    count = _SECONDS * OUTPUT_RATE
    frequencies = np.fft.rfftfreq(count, 1 / OUTPUT_RATE)
    spectrum = rng.normal(size=len(frequencies)) + 1j * rng.normal(size=len(frequencies))
    spectrum *= np.where(frequencies < _LOWEST_HZ, 0.0, 1 / np.sqrt(np.maximum(frequencies, _LOWEST_HZ)))
    return normalized(np.fft.irfft(spectrum, count))


def babble(voices: Sequence[Samples], seed: int) -> Samples:
    """Many simultaneous talkers, RMS 1. Each recording loops with its own offset and pitch."""
    rng = np.random.default_rng(seed)
    count = _SECONDS * OUTPUT_RATE
    mixed = np.zeros(count, np.float64)
    for n, voice in enumerate([*voices, *voices]):
        pitched = resample(voice, int(OUTPUT_RATE * (0.82 + 0.09 * (n % 5))), OUTPUT_RATE)
        looped = np.resize(pitched, count)
        mixed += np.roll(looped, int(rng.integers(count))) * rng.uniform(0.5, 1.0)
    return normalized(mixed)


def at_snr(background: Samples, speech: Samples, snr_db: float) -> Samples:
    """Scale the background to `snr_db` below the level of the speech without its pauses.

    Args:
        background: RMS 1.
    """
    voiced = speech[np.abs(speech) >= 0.01 * np.abs(speech).max(initial=1e-9)]
    level = float(np.sqrt(np.mean(np.square(voiced, dtype=np.float64)))) if voiced.size else 0.0
    scaled: Samples = (background * level * 10 ** (-snr_db / 20)).astype(np.float32)
    return scaled


def normalized(samples: NDArray[np.floating]) -> Samples:
    """[T] at RMS 1."""
    level = float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))
    out: Samples = (samples / max(level, 1e-9)).astype(np.float32)
    return out
