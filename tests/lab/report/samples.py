"""Tones, a fake voice, and measurements for the tests of the report."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lab.report.measure import Measurement
from lab.report.run import Run
from voice.audio.codec import OUTPUT_RATE, Samples
from voice.clauses import Clause
from voice.lexicon import NO_LEXICON, Lexicon


class FakeSynthesizer:
    """Synthesizes a tone of 60 ms per word, between silence.

    Args:
        pitch: samples per radian; 8 is 480 Hz.
    """

    def __init__(self, pitch: float = 8.0) -> None:
        self._pitch = pitch

    def synthesize(self, clause: Clause, speed: float = 1.0, learned: Lexicon = NO_LEXICON) -> Samples:
        length = int(len(clause.text.split()) * 0.06 * OUTPUT_RATE / speed)
        wave = 0.5 * np.sin(np.arange(length) / self._pitch)
        return np.concatenate((np.zeros(500), wave, np.zeros(4000))).astype(np.float32)


def tone(seconds: float, leading_silence: float = 0.0) -> Samples:
    """A constant signal after silence, both in seconds."""
    silence = np.zeros(round(leading_silence * OUTPUT_RATE))
    return np.concatenate((silence, np.full(round(seconds * OUTPUT_RATE), 0.5))).astype(np.float32)


def answered(latency_ms: float, name: str = "short-1", **fields: object) -> Measurement:
    """An answered turn."""
    turn = Measurement(name, name.rpartition("-")[0], "words")
    return replace(turn, latency_ms=latency_ms, first_audio_ms=latency_ms, **fields)  # type: ignore[arg-type]


MEASUREMENTS = [
    answered(
        400,
        stages_ms={"end_of_turn": 250.0, "transcription": 100.0},
        speculations=2,
        speculation_used=True,
        underruns=1,
    ),
    answered(
        600,
        "long-1",
        stages_ms={"end_of_turn": 350.0, "transcription": 150.0},
        speculations=1,
        speculation_used=False,
        drafts_spoken=1,
        drafts_dropped=2,
        steps=12,
        drafts_shown=30,
        drafts_kept=21,
        drafted_by=["copied", "diffusion"],
    ),
    replace(Measurement("number-1", "number", "five, six"), cut_off=True),
    replace(Measurement("short-2", "short", "hm"), missed=True, early_commit=True),
    answered(900, "interruption-1", barge_in_stop_ms=180.0, barge_in_sent_ms=150.0),
    answered(800, "backchannel-1", backchannel="survived"),
]


SPOKEN_BY_TWO = [
    replace(turn, voice="kokoro:bf_emma" if n % 2 else "en_US-joe-medium") for n, turn in enumerate(MEASUREMENTS)
]
"""The same turns, alternately spoken by two voices."""


def run_of(measurements: list[Measurement], date: str = "2026-01-02T03:04:05+00:00") -> Run:
    """A run with these measurements."""
    return Run(date, "ws://server", "corpus", {"cpu": "A <fast> one", "cores": 2, "gpu": None}, {}, {}, measurements)
