"""Speech synthesis: one interface to Piper and Kokoro voices. The silence around each clause is trimmed to what a
listener expects."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np

from voice.audio.codec import OUTPUT_RATE, Samples, trim_silence
from voice.audio.resampling import resample
from voice.clauses import Clause, speakable
from voice.kokoro_voice import KokoroSynthesizer
from voice.piper_voice import PiperSynthesizer
from voice.speech_device import CPU, SpeechDevice

_LEAD_MS = 4.0
"""Silence kept before a clause. Piper adds 20 to 150 ms and Kokoro about 300, which would delay the response."""

_CLAUSE_TAIL_MS, _SENTENCE_TAIL_MS = 40.0, 220.0
"""Silence kept after a clause within a sentence, and after a sentence: the pauses of an unhurried speaker."""


class _Synthesizer(Protocol):
    """A model that pronounces text as [T] float32 at `sample_rate`."""

    @property
    def sample_rate(self) -> int: ...

    def pronounce(self, text: str, speed: float) -> Samples: ...


class Voice:
    """A loaded voice. Blocking, and used by one thread at a time.

    Args:
        path: a Piper voice's `.onnx` file or a Kokoro voice's `.bin` file.
        threads: CPU threads for one clause.
        device: where it runs.

    Raises:
        BadAudio: the voice's files are missing or damaged.
        SpeechDeviceUnavailable: it cannot run there.
    """

    def __init__(self, path: Path, *, threads: int = 2, device: SpeechDevice = CPU) -> None:
        self._synthesizer: _Synthesizer = (
            KokoroSynthesizer(path, threads, device)
            if path.suffix == ".bin"
            else PiperSynthesizer(path, threads, device)
        )
        self.name = path.stem

    def synthesize(self, clause: Clause, speed: float = 1.0) -> Samples:
        """Synthesize one clause: [T] float32 at 24 kHz, empty if the clause has nothing to pronounce.

        Args:
            speed: 1 is the voice's own speed, 2 twice as fast.
        """
        text = speakable(clause.text)
        if not text:
            return np.zeros(0, np.float32)
        samples, rate = self._synthesizer.pronounce(text, speed), self._synthesizer.sample_rate
        tail = _SENTENCE_TAIL_MS if clause.ends_sentence else _CLAUSE_TAIL_MS
        return resample(trim_silence(samples, rate, lead_ms=_LEAD_MS, tail_ms=tail), rate, OUTPUT_RATE)
