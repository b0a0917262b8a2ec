"""Detects from the audio alone, without the words, whether the user's turn is complete.

With the optional extra this is Smart Turn v3.2 (a Whisper encoder with a classifier, BSD-2, by Daily, inside
pipecat-ai). Otherwise it is prosody: at the end of a turn people lower their voice, or raise it for a question, and get
softer. Before a pause for thought they keep it level.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import numpy as np
import onnxruntime
from faster_whisper.feature_extractor import FeatureExtractor
from numpy.typing import NDArray

from voice.audio.codec import RECOGNITION_RATE, Samples

_SMART_TURN_S = 8
"""Smart Turn takes the last eight seconds."""

_PROSODY_S = 2.0
"""Length of the speech whose prosody is analysed."""

_FRAME, _HOP = 640, 160
"""Samples: 40 ms every 10 ms. Two periods of the lowest pitch fit into a frame."""

_MIN_PITCH_HZ, _MAX_PITCH_HZ = 70, 400
_VOICED_THRESHOLD = 0.5
"""A frame is voiced if the peak of its autocorrelation is higher than this."""

_FINAL_FRAMES = 8
"""Voiced frames that count as the end of the speech."""

_MIN_VOICED_FRAMES = 20
"""With fewer voiced frames, prosody gives no result."""


AudioTurnDetector = Callable[[Samples], float | None]
"""Probability that audio, [T] float32 at 16 kHz which ends with the last speech, is a complete turn. None if it cannot
be determined. Blocking."""


def load_audio_turn_detector() -> AudioTurnDetector:
    """Smart Turn if it is installed (the extra `smart-turn`), otherwise prosody."""
    path = _smart_turn_file()
    return prosodic_completion if path is None else SmartTurn(path)


def _smart_turn_file() -> Path | None:
    try:
        files = metadata.files("pipecat-ai") or []
    except metadata.PackageNotFoundError:
        return None
    return next((Path(str(f.locate())) for f in files if f.name == "smart-turn-v3.2-cpu.onnx"), None)


class SmartTurn:
    """Smart Turn v3, trained on labelled speech of many languages.

    Args:
        path: `smart-turn-v3.2-cpu.onnx`.
    """

    def __init__(self, path: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._features = FeatureExtractor(chunk_length=_SMART_TURN_S)

    def __call__(self, audio: Samples) -> float | None:
        """See `AudioTurnDetector`. Short audio is padded with silence at the front, as in the model's training."""
        samples = _SMART_TURN_S * RECOGNITION_RATE
        padded = np.pad(audio[-samples:], (max(0, samples - len(audio)), 0))
        normalized = (padded - padded.mean()) / np.sqrt(padded.var() + 1e-7)
        mel = self._features(normalized, padding=0)[:, : _SMART_TURN_S * 100]
        (out,) = self._session.run(None, {"input_features": mel[None].astype(np.float32)})
        return float(np.ravel(out)[0])


_WEIGHTS, _BIAS, _MAX_FEATURE = np.array([-0.06, 0.01, -0.20]), -2.7, 20.0
_MAX_LOG_ODDS = 0.4
"""A logistic regression of pitch change in semitones (negative: it falls), its absolute value and loudness change in dB
on 454 stops in the recordings of one speaker (area under the curve 0.58), and a limit to its
effect: pitch and loudness of other voices change by other amounts, so prosody only tips the balance."""


def prosodic_completion(audio: Samples) -> float | None:
    """An `AudioTurnDetector` that compares pitch and loudness at the end of the speech with those of the two seconds
    before. None if too few frames are voiced."""
    pitch, level = pitch_contour(audio[-int(_PROSODY_S * RECOGNITION_RATE) :])
    voiced = np.flatnonzero(pitch > 0)
    if len(voiced) < _MIN_VOICED_FRAMES:
        return None
    final, before = voiced[-_FINAL_FRAMES:], voiced[:-_FINAL_FRAMES]
    semitones = 12 * math.log2(float(np.median(pitch[final])) / float(np.median(pitch[before])))
    decibels = float(np.median(level[final]) - np.median(level[before]))
    features = np.clip(np.array([semitones, abs(semitones), decibels]), -_MAX_FEATURE, _MAX_FEATURE)
    log_odds = float(np.dot(_WEIGHTS, features)) + _BIAS
    return 1 / (1 + math.exp(-max(-_MAX_LOG_ODDS, min(log_odds, _MAX_LOG_ODDS))))


def pitch_contour(audio: Samples) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Pitch in Hz (0 if unvoiced) and level in dB of each frame, from the normalized autocorrelation."""
    if len(audio) < _FRAME:
        return np.zeros(0), np.zeros(0)
    frames = np.lib.stride_tricks.sliding_window_view(audio.astype(np.float64), _FRAME)[::_HOP]
    frames = (frames - frames.mean(axis=1, keepdims=True)) * np.hanning(_FRAME)
    autocorrelation = np.fft.irfft(np.abs(np.fft.rfft(frames, 2 * _FRAME)) ** 2)[:, :_FRAME]
    window = np.fft.irfft(np.abs(np.fft.rfft(np.hanning(_FRAME), 2 * _FRAME)) ** 2)[:_FRAME]
    energy = autocorrelation[:, 0]
    min_lag, max_lag = RECOGNITION_RATE // _MAX_PITCH_HZ, RECOGNITION_RATE // _MIN_PITCH_HZ
    lags = autocorrelation[:, min_lag:max_lag] / np.maximum(energy, 1e-12)[:, None]
    lags = lags * (window[0] / window[min_lag:max_lag])
    # Take the first peak that is nearly the highest: the highest itself may be an octave too low.
    first = (lags >= 0.9 * lags.max(axis=1, keepdims=True)).argmax(axis=1)
    near = np.minimum(first[:, None] + np.arange(12), lags.shape[1] - 1)
    best = np.take_along_axis(near, np.take_along_axis(lags, near, 1).argmax(axis=1)[:, None], 1)[:, 0]
    level = 10 * np.log10(np.maximum(energy, 1e-12))
    voiced = (lags[np.arange(len(lags)), best] > _VOICED_THRESHOLD) & (level > level.max() - 30)
    return np.where(voiced, RECOGNITION_RATE / (best + min_lag), 0.0), level
