"""Speech or not, one window of 32 ms at a time.

webrtcvad is the first gate: it costs microseconds, so a silent line costs next to nothing. Silero judges what passes,
and what is much softer than the user is not theirs (`level.py`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import webrtcvad
from numpy.typing import NDArray

from voice.audio import HEARING_RATE, Samples, to_pcm16
from voice.level import LevelGate

WINDOW = 512
"""Samples that Silero judges at a time at 16 kHz (32 ms)."""

WINDOW_MS = WINDOW * 1000 // HEARING_RATE

_CONTEXT = 64
"""Samples of the window before, which Silero v5 and later want in front of each window."""

_GATE_FRAME = 160
"""webrtcvad takes 10, 20 or 30 ms; three frames of 10 ms cover nearly all of a window."""

_GATE_MODE = 1
"""webrtcvad's aggressiveness, 0 to 3. At 1 it lets soft speech through, and Silero turns noise away."""

_WARM_WINDOWS = 4
"""Windows kept while the gate is shut, run first when it opens: Silero is recurrent and misjudges a cold start."""

_SHUT_AFTER = 16
"""Windows (half a second) of nothing in either detector's opinion before the gate shuts."""

_NOTHING = 0.1
"""Silero's probability below which a window is surely no speech."""


@dataclass(frozen=True)
class Frame:
    """One judged window.

    Attributes:
        probability: of speech, 0 to 1.
        start_ms, end_ms: place in the audio received so far.
    """

    probability: float
    start_ms: int
    end_ms: int


State = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Silero's recurrent state: `h` and `c`, [1, 1, 128] each."""


class Silero:
    """The Silero VAD network, loaded once and shared; each stream keeps its own state.

    Args:
        path: an ONNX file of Silero v6 as faster-whisper carries it (inputs `input`, `h`, `c`).
    """

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.inter_op_num_threads = options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(self, windows: NDArray[np.float32], state: State) -> tuple[list[float], State]:
        """Judge consecutive windows [n, 64 + 512]; returns a probability each and the state behind the last."""
        out, h, c = self._session.run(None, {"input": windows, "h": state[0], "c": state[1]})
        return [float(p) for p in np.ravel(out)], (h, c)


def bundled_silero() -> Path:
    """The ONNX file inside the faster-whisper package."""
    from faster_whisper.utils import get_assets_path

    return Path(get_assets_path()) / "silero_vad_v6.onnx"


class SpeechDetector:
    """Judges one stream.

    Args:
        silero: the shared network.
    """

    def __init__(self, silero: Silero) -> None:
        self._silero = silero
        self._gate = webrtcvad.Vad(_GATE_MODE)
        self._level = LevelGate()
        self._rest: Samples = np.zeros(0, np.float32)
        self._kept: deque[Samples] = deque(maxlen=_WARM_WINDOWS)
        self._seen = 0
        self._open = False
        self._nothing_for = 0
        self._state = _zero_state()
        self._context: Samples = np.zeros(_CONTEXT, np.float32)

    def push(self, samples: Samples) -> list[Frame]:
        """Take any number of samples at 16 kHz; returns the windows they complete."""
        self._rest = np.concatenate((self._rest, samples))
        frames = []
        while len(self._rest) >= WINDOW:
            window, self._rest = self._rest[:WINDOW], self._rest[WINDOW:]
            start = self._seen * WINDOW_MS
            self._seen += 1
            self._level.hear(window)
            probability = self._judge(window)
            if probability > 0 and not self._level.loud():
                probability = 0.0
            frames.append(Frame(probability, start, start + WINDOW_MS))
        return frames

    def _judge(self, window: Samples) -> float:
        sound = self._passes_gate(window)
        if not self._open:
            if not sound:
                self._kept.append(window)
                return 0.0
            self._open, self._nothing_for = True, 0
            self._state, self._context = _zero_state(), np.zeros(_CONTEXT, np.float32)
            for kept in self._kept:
                self._ask_silero(kept)
            self._kept.clear()
        probability = self._ask_silero(window)
        self._nothing_for = 0 if sound or probability >= _NOTHING else self._nothing_for + 1
        if self._nothing_for >= _SHUT_AFTER:
            self._open = False
        return probability

    def _passes_gate(self, window: Samples) -> bool:
        pcm = to_pcm16(window)
        size = _GATE_FRAME * 2
        return any(self._gate.is_speech(pcm[at : at + size], HEARING_RATE) for at in range(0, 3 * size, size))

    def _ask_silero(self, window: Samples) -> float:
        joined = np.concatenate((self._context, window))[None]
        self._context = window[-_CONTEXT:]
        (probability,), self._state = self._silero.run(joined, self._state)
        return probability


def _zero_state() -> State:
    zeros = np.zeros((1, 1, 128), np.float32)
    return zeros, zeros
