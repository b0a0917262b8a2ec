"""Judges by the sound alone, without the words, whether the user's turn is over.

This is Smart Turn v3.2 (a Whisper encoder with a classifier, BSD-2, by Daily, inside pipecat-ai), with the extra
`smart-turn`. Pitch and loudness at the end of the speech were tried in its place, and tell nothing of voices that they
were not fitted to.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import numpy as np
import onnxruntime
from faster_whisper.feature_extractor import FeatureExtractor

from voice.audio.codec import RECOGNITION_RATE, Samples

_SMART_TURN_S = 8
"""Smart Turn takes the last eight seconds."""


AudioTurnDetector = Callable[[Samples], float]
"""Probability that audio, [T] float32 at 16 kHz which ends with the last speech, is a complete turn. Blocking."""


def load_audio_turn_detector() -> AudioTurnDetector | None:
    """Smart Turn if it is installed (the extra `smart-turn`)."""
    path = _smart_turn_file()
    return None if path is None else SmartTurn(path)


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

    def __call__(self, audio: Samples) -> float:
        """See `AudioTurnDetector`. Short audio is padded with silence at the front, as in the model's training."""
        samples = _SMART_TURN_S * RECOGNITION_RATE
        padded = np.pad(audio[-samples:], (max(0, samples - len(audio)), 0))
        normalized = (padded - padded.mean()) / np.sqrt(padded.var() + 1e-7)
        mel = self._features(normalized, padding=0)[:, : _SMART_TURN_S * 100]
        (out,) = self._session.run(None, {"input_features": mel[None].astype(np.float32)})
        return float(np.ravel(out)[0])
