"""Noisy turns: each of the recorded sentences in each of the recorded noises, with its true end of speech."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lab.report.background import at_snr
from voice.audio.codec import RECOGNITION_RATE, BadAudio, Samples
from voice.audio.wav import read_wav

_LEAD_S, _TAIL_S = 2.0, 4.0
"""Noise before and after the sentence. A turn whose end is not detected within the tail is missed."""

_ROOM_DB = 50.0
"""SNR of the turns without noise: a quiet room and its microphone."""


@dataclass(frozen=True)
class NoisyTurn:
    """One mixture.

    Attributes:
        noise: its name, or `quiet`.
        snr_db: power of the speech without its pauses, relative to the noise.
        audio, speech: [T] float32 at 16 kHz, with and without the noise.
        speech_start_ms, speech_end_ms: first and last sample of the clean speech above -40 dB of its peak.
        text: what is said, empty if unknown. `|` marks a pause.
    """

    speaker: str
    noise: str
    snr_db: float
    audio: Samples
    speech: Samples
    speech_start_ms: float
    speech_end_ms: float
    text: str


def noisy_turns(half: Path, snrs_db: tuple[float, ...], sentences: int) -> Iterator[NoisyTurn]:
    """`sentences` of every speaker, in every noise at every SNR and without noise.

    Args:
        half: folder with `speakers/NAME/N.wav` and `N.txt`, and perhaps `noises/NAME.wav`.

    Raises:
        BadAudio: the folder has no speakers.
    """
    noises = {path.stem: read_wav(path) for path in sorted((half / "noises").glob("*.wav"))}
    speakers = [path for path in sorted((half / "speakers").glob("*")) if path.is_dir()]
    if not speakers:
        raise BadAudio(f"{half} has no speakers: run `python -m lab.benchmarks.noisy_turns.sources` first")
    random = np.random.default_rng(0)
    room = random.normal(size=RECOGNITION_RATE * 30).astype(np.float32)
    for number, speaker in enumerate(speakers):
        paths = sorted(speaker.glob("*.wav"), key=lambda path: int(path.stem))
        for path in (paths[(number * sentences + n) % len(paths)] for n in range(sentences)):
            speech, text = read_wav(path), path.with_suffix(".txt").read_text(encoding="utf-8").strip()
            yield _mixed(speaker.name, "quiet", _ROOM_DB, speech, room, text)
            for name, noise in noises.items():
                shifted = np.roll(noise, int(random.integers(len(noise))))
                for snr_db in snrs_db:
                    yield _mixed(speaker.name, name, snr_db, speech, shifted, text)


def _mixed(speaker: str, name: str, snr_db: float, speech: Samples, noise: Samples, text: str) -> NoisyTurn:
    lead, tail = round(_LEAD_S * RECOGNITION_RATE), round(_TAIL_S * RECOGNITION_RATE)
    padded = np.pad(speech, (lead, tail))
    noise = np.resize(noise, len(padded))
    noise = noise / np.float32(np.sqrt(np.mean(np.square(noise, dtype=np.float64))))
    loud = np.flatnonzero(np.abs(speech) >= 0.01 * np.abs(speech).max())
    start, end = (1000 * (lead + int(sample)) / RECOGNITION_RATE for sample in (loud[0], loud[-1]))
    return NoisyTurn(speaker, name, snr_db, padded + at_snr(noise, speech, snr_db), padded, start, end, text)
