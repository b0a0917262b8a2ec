"""Does the end of what the user said sound like the end of a turn? From the sound alone, words apart.

With the optional extra, Smart Turn v3.2 answers (a Whisper encoder with a classifier, BSD-2; Daily, inside
pipecat-ai). Otherwise the melody does: people let their voice fall, or rise for a question, and soften at the end of a
turn, and keep it level in front of a pause for thought.
"""

from __future__ import annotations

import math
from importlib import metadata
from pathlib import Path
from typing import Protocol

import numpy as np
import onnxruntime
from faster_whisper.feature_extractor import FeatureExtractor
from numpy.typing import NDArray

from voice.audio import HEARING_RATE, Samples

_SECONDS = 8
"""Smart Turn looks at the last eight seconds."""

_LOOK_S = 2.0
"""Speech that the melody is taken from."""

_FRAME, _HOP = 640, 160
"""Samples: 40 ms every 10 ms. Two periods of the lowest voice fit into a frame."""

_LOWEST_HZ, _HIGHEST_HZ = 70, 400
_VOICED = 0.5
"""Height of the autocorrelation's peak from which a frame has a pitch."""

_LAST_FRAMES = 8
"""Voiced frames that are the end."""

_FEWEST_FRAMES = 20
"""Voiced frames without which nothing is said about the melody."""


class EndingSound(Protocol):
    """Judges how speech ends. Blocking."""

    def ends(self, audio: Samples) -> float | None:
        """Probability that [T] float32 at 16 kHz, which closes with the last of the speech, is a whole turn; None
        where it cannot be told."""
        ...


def ending_sound() -> EndingSound:
    """Smart Turn where it is installed (`pip install "rejoinder[smart-turn]"`), otherwise the melody."""
    path = _smart_turn_file()
    return Melody() if path is None else SmartTurn(path)


def _smart_turn_file() -> Path | None:
    try:
        files = metadata.files("pipecat-ai") or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(f.locate())) for f in files if f.name == "smart-turn-v3.2-cpu.onnx"), None)


class SmartTurn:
    """Smart Turn v3, which was taught on labelled speech of many languages.

    Args:
        path: `smart-turn-v3.2-cpu.onnx`.
    """

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._features = FeatureExtractor(chunk_length=_SECONDS)

    def ends(self, audio: Samples) -> float | None:
        """As `EndingSound`. The silence that is missing is put in front, as the model was taught."""
        samples = _SECONDS * HEARING_RATE
        heard = np.pad(audio[-samples:], (max(0, samples - len(audio)), 0))
        level = (heard - heard.mean()) / np.sqrt(heard.var() + 1e-7)
        mel = self._features(level, padding=0)[:, : _SECONDS * 100]
        (out,) = self._session.run(None, {"input_features": mel[None].astype(np.float32)})
        return float(np.ravel(out)[0])


class Melody:
    """Pitch and loudness of the last voiced sound against those of the two seconds before."""

    def ends(self, audio: Samples) -> float | None:
        """As `EndingSound`."""
        found = features(audio)
        if found is None:
            return None
        odds = float(np.dot(_WEIGHTS, np.clip(found, -_LARGEST, _LARGEST))) + _BIAS
        return 1 / (1 + math.exp(-max(-_MOST_ODDS, min(odds, _MOST_ODDS))))


_WEIGHTS, _BIAS, _LARGEST = np.array([-0.06, 0.01, -0.20]), -2.7, 20.0
_MOST_ODDS = 0.4
"""A logistic regression on 454 stops in the recordings of one speaker (area under the curve 0.58), and what it may
weigh: other voices fall and soften by other amounts, so it only tips the balance."""


def features(audio: Samples) -> NDArray[np.float64] | None:
    """Fall of the pitch in semitones (below 0: it falls), how far it moves either way, and change of loudness in dB at
    the end of [T] float32 at 16 kHz; None where too little of it is voiced."""
    pitch, level = contour(audio[-int(_LOOK_S * HEARING_RATE) :])
    voiced = np.flatnonzero(pitch > 0)
    if len(voiced) < _FEWEST_FRAMES:
        return None
    last, before = voiced[-_LAST_FRAMES:], voiced[:-_LAST_FRAMES]
    fall = 12 * math.log2(float(np.median(pitch[last])) / float(np.median(pitch[before])))
    louder = float(np.median(level[last]) - np.median(level[before]))
    return np.array([fall, abs(fall), louder])


def contour(audio: Samples) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Pitch in Hz (0 where there is none) and level in dB of each frame, by the normalized autocorrelation."""
    if len(audio) < _FRAME:
        return np.zeros(0), np.zeros(0)
    frames = np.lib.stride_tricks.sliding_window_view(audio.astype(np.float64), _FRAME)[::_HOP]
    frames = (frames - frames.mean(axis=1, keepdims=True)) * np.hanning(_FRAME)
    alike = np.fft.irfft(np.abs(np.fft.rfft(frames, 2 * _FRAME)) ** 2)[:, :_FRAME]
    window = np.fft.irfft(np.abs(np.fft.rfft(np.hanning(_FRAME), 2 * _FRAME)) ** 2)[:_FRAME]
    energy = alike[:, 0]
    shortest, longest = HEARING_RATE // _HIGHEST_HZ, HEARING_RATE // _LOWEST_HZ
    lags = alike[:, shortest:longest] / np.maximum(energy, 1e-12)[:, None] * (window[0] / window[shortest:longest])
    # The first peak that is nearly the highest: the highest may be an octave below.
    first = (lags >= 0.9 * lags.max(axis=1, keepdims=True)).argmax(axis=1)
    near = np.minimum(first[:, None] + np.arange(12), lags.shape[1] - 1)
    best = np.take_along_axis(near, np.take_along_axis(lags, near, 1).argmax(axis=1)[:, None], 1)[:, 0]
    level = 10 * np.log10(np.maximum(energy, 1e-12))
    sure = (lags[np.arange(len(lags)), best] > _VOICED) & (level > level.max() - 30)
    return np.where(sure, HEARING_RATE / (best + shortest), 0.0), level
