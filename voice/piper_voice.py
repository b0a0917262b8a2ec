"""Speech synthesis with Piper (VITS): fast, and its voices have one speaker each."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from piper import PiperConfig, PiperVoice, SynthesisConfig

from voice.audio.codec import Samples
from voice.speech_device import CPU, SpeechDevice
from voice.voice_file import open_session, voice_errors


class PiperSynthesizer:
    """A loaded Piper voice.

    Args:
        path: the `.onnx` file. Its `.onnx.json` must be in the same folder.

    Raises:
        BadAudio: a file is missing or damaged.
    """

    def __init__(self, path: Path, device: SpeechDevice = CPU) -> None:
        with voice_errors(path, "a Piper voice is an .onnx file and its .onnx.json"):
            config = PiperConfig.from_dict(json.loads(Path(f"{path}.json").read_text(encoding="utf-8")))
            self._piper = PiperVoice(session=open_session(path, device), config=config)
        self.sample_rate: int = config.sample_rate
        self.speaks_english = config.espeak_voice.startswith("en")

    def pronounce(self, text: str, speed: float) -> Samples:
        """[T] float32 at `sample_rate`, with silence around it."""
        config = SynthesisConfig(length_scale=self._piper.config.length_scale / speed)
        chunks = [chunk.audio_float_array for chunk in self._piper.synthesize(text, config)]
        return np.concatenate(chunks or [np.zeros(0, np.float32)])
