"""What is behind the voice: pink noise, and people talking across each other. Both [T] float32 at 24 kHz, looped."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from voice.audio import SPEAKING_RATE, Samples, resample

_SECONDS = 12
"""Length of a loop: longer than nearly every turn."""

_LOWEST_HZ = 50.0
"""Pink noise is cut off below this: a microphone hears no deeper."""


def pink(seed: int) -> Samples:
    """Noise with equal power in every octave, root mean square 1, its end joining its beginning."""
    rng = np.random.default_rng(seed)
    count = _SECONDS * SPEAKING_RATE
    frequencies = np.fft.rfftfreq(count, 1 / SPEAKING_RATE)
    spectrum = rng.normal(size=len(frequencies)) + 1j * rng.normal(size=len(frequencies))
    spectrum *= np.where(frequencies < _LOWEST_HZ, 0.0, 1 / np.sqrt(np.maximum(frequencies, _LOWEST_HZ)))
    return _levelled(np.fft.irfft(spectrum, count))


def babble(voices: Sequence[Samples], seed: int) -> Samples:
    """Many talkers at once, root mean square 1: each recording repeats from its own beginning, higher or lower."""
    rng = np.random.default_rng(seed)
    count = _SECONDS * SPEAKING_RATE
    mixed = np.zeros(count, np.float64)
    for n, voice in enumerate([*voices, *voices]):
        pitched = resample(voice, int(SPEAKING_RATE * (0.82 + 0.09 * (n % 5))), SPEAKING_RATE)
        looped = np.resize(pitched, count)
        mixed += np.roll(looped, int(rng.integers(count))) * rng.uniform(0.5, 1.0)
    return _levelled(mixed)


def at_snr(background: Samples, speech: Samples, snr_db: float) -> Samples:
    """The background as loud as `snr_db` below the speech; pauses of the speech do not count.

    Args:
        background: root mean square 1.
    """
    spoken = speech[np.abs(speech) >= 0.01 * np.abs(speech).max(initial=1e-9)]
    level = float(np.sqrt(np.mean(np.square(spoken, dtype=np.float64)))) if spoken.size else 0.0
    quieter: Samples = (background * level * 10 ** (-snr_db / 20)).astype(np.float32)
    return quieter


def _levelled(sound: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Samples:
    level = float(np.sqrt(np.mean(np.square(sound))))
    out: Samples = (sound / max(level, 1e-9)).astype(np.float32)
    return out
