"""Voice activity detection, one window of 32 ms at a time.

webrtcvad runs first: it takes microseconds, so a silent line costs next to nothing. Silero judges the windows that
pass, and the loudness gate rejects speech that is much softer than the user's (`loudness_gate.py`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import webrtcvad
from numpy.typing import NDArray

from voice.audio.codec import RECOGNITION_RATE, Samples, to_pcm16
from voice.audio.loudness_gate import LoudnessGate

WINDOW_SAMPLES = 512
"""Samples at 16 kHz that Silero judges at a time (32 ms)."""

WINDOW_MS = WINDOW_SAMPLES * 1000 // RECOGNITION_RATE

_CONTEXT = 64
"""Samples of the previous window, which Silero v5 and later expect in front of each window."""

_GATE_FRAME = 160
"""Samples. webrtcvad takes 10, 20 or 30 ms; three frames of 10 ms cover nearly all of a window."""

_GATE_MODE = 1
"""webrtcvad's aggressiveness, 0 to 3. At 1 it passes soft speech, and Silero rejects noise."""

_WARM_UP_WINDOWS = 4
"""Windows kept while the gate is closed and run first when it opens: Silero is recurrent and misjudges a cold start."""

_CLOSE_AFTER = 16
"""Windows (half a second) without speech according to both detectors before the gate closes."""

_NO_SPEECH_PROBABILITY = 0.1
"""Below this probability from Silero, a window certainly holds no speech."""


@dataclass(frozen=True)
class Frame:
    """The result for one window.

    Attributes:
        probability: of speech, 0 to 1.
        start_ms, end_ms: position in the audio received so far.
    """

    probability: float
    start_ms: int
    end_ms: int


SileroState = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Silero's recurrent state: `h` and `c`, [1, 1, 128] each."""


class Silero:
    """The Silero VAD network, loaded once and shared. Each stream keeps its own state.

    Args:
        path: an ONNX file of Silero v6 as faster-whisper bundles it (inputs `input`, `h`, `c`).
    """

    def __init__(self, path: Path) -> None:
        import onnxruntime  # late: a text conversation needs none

        options = onnxruntime.SessionOptions()
        options.inter_op_num_threads = options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def run(self, windows: NDArray[np.float32], state: SileroState) -> tuple[list[float], SileroState]:
        """Judge consecutive windows [n, 64 + 512]; returns one probability each and the state after the last one."""
        out, h, c = self._session.run(None, {"input": windows, "h": state[0], "c": state[1]})
        return [float(p) for p in np.ravel(out)], (h, c)


def bundled_silero() -> Path:
    """The ONNX file inside the faster-whisper package."""
    from faster_whisper.utils import get_assets_path

    return Path(get_assets_path()) / "silero_vad_v6.onnx"


class SpeechDetector:
    """Detects speech in one stream.

    Args:
        silero: the shared network.
    """

    def __init__(self, silero: Silero) -> None:
        self._silero = silero
        self._gate = webrtcvad.Vad(_GATE_MODE)
        self._loudness_gate = LoudnessGate()
        self._pending: Samples = np.zeros(0, np.float32)
        self._warm_up: deque[Samples] = deque(maxlen=_WARM_UP_WINDOWS)
        self._num_windows = 0
        self._open = False
        self._windows_without_speech = 0
        self._state = _zero_state()
        self._context: Samples = np.zeros(_CONTEXT, np.float32)

    def push(self, samples: Samples) -> list[Frame]:
        """Take any number of samples at 16 kHz; returns the windows that they complete."""
        self._pending = np.concatenate((self._pending, samples))
        frames = []
        while len(self._pending) >= WINDOW_SAMPLES:
            window, self._pending = self._pending[:WINDOW_SAMPLES], self._pending[WINDOW_SAMPLES:]
            start = self._num_windows * WINDOW_MS
            self._num_windows += 1
            self._loudness_gate.push(window)
            probability = self._speech_probability(window)
            if probability > 0 and not self._loudness_gate.is_loud_enough():
                probability = 0.0
            frames.append(Frame(probability, start, start + WINDOW_MS))
        return frames

    @property
    def is_noisy(self) -> bool:
        """Whether the background is so loud that words are misheard."""
        return self._loudness_gate.is_noisy

    def _speech_probability(self, window: Samples) -> float:
        passes = self._passes_gate(window)
        if not self._open:
            if not passes:
                self._warm_up.append(window)
                return 0.0
            self._open, self._windows_without_speech = True, 0
            self._state, self._context = _zero_state(), np.zeros(_CONTEXT, np.float32)
            for earlier in self._warm_up:
                self._run_silero(earlier)
            self._warm_up.clear()
        probability = self._run_silero(window)
        has_speech = passes or probability >= _NO_SPEECH_PROBABILITY
        self._windows_without_speech = 0 if has_speech else self._windows_without_speech + 1
        if self._windows_without_speech >= _CLOSE_AFTER:
            self._open = False
        return probability

    def _passes_gate(self, window: Samples) -> bool:
        pcm = to_pcm16(window)
        size = _GATE_FRAME * 2
        return any(
            self._gate.is_speech(pcm[start : start + size], RECOGNITION_RATE) for start in range(0, 3 * size, size)
        )

    def _run_silero(self, window: Samples) -> float:
        windows = np.concatenate((self._context, window))[None]
        self._context = window[-_CONTEXT:]
        (probability,), self._state = self._silero.run(windows, self._state)
        return probability


def _zero_state() -> SileroState:
    zeros = np.zeros((1, 1, 128), np.float32)
    return zeros, zeros
