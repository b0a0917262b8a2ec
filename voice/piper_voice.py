"""Speech synthesis with Piper (VITS): fast, and its voices have one speaker each."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from piper import AudioChunk, PiperConfig, PiperVoice, SynthesisConfig
from piper.const import BOS, EOS, PAD

from voice.pronunciation import Pronunciation, joined
from voice.speech_device import CPU, SpeechDevice
from voice.voice_file import open_session, voice_errors

_DURATIONS = "Ceil"
"""Operator of the only node that computes how many frames each phoneme lasts (piper.patch_voice_with_alignment)."""


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
            self._piper = PiperVoice(session=open_session(path, device, exposed=_DURATIONS), config=config)
        self.sample_rate: int = config.sample_rate
        self.speaks_english = config.espeak_voice.startswith("en")

    def pronounce(self, text: str, speed: float) -> Pronunciation:
        """The sound of a text at `sample_rate`, with silence around it, and its phonemes as espeak-ng writes them."""
        config = SynthesisConfig(length_scale=self._piper.config.length_scale / speed)
        return joined([self._part(chunk) for chunk in self._piper.synthesize(text, config, include_alignments=True)])

    def _part(self, chunk: AudioChunk) -> Pronunciation:
        ids = self._piper.config.phoneme_id_map
        symbols = [BOS, *(phoneme for phoneme in chunk.phonemes if phoneme in ids), EOS]
        counts = [
            len(ids[symbol]) + len(ids[PAD]) for symbol in symbols
        ]  # blanks separate them, but none is at the end
        counts[-1] -= len(ids[PAD])
        lengths = chunk.phoneme_id_samples
        if lengths is None or len(lengths) != sum(counts):  # not of a language whose phonemes are written differently
            return Pronunciation(chunk.audio_float_array, symbols, None)
        starts = np.cumsum([0, *counts[:-1]])
        return Pronunciation(chunk.audio_float_array, symbols, np.add.reduceat(lengths, starts).astype(np.float64))
