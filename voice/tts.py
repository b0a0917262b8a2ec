"""Speech synthesis with Piper. The silence around each clause is trimmed to what a listener expects."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
from piper import PiperConfig, PiperVoice, SynthesisConfig

from voice.audio.codec import OUTPUT_RATE, BadAudio, Samples, trim_silence
from voice.audio.resampling import resample
from voice.clauses import Clause, speakable

_LEAD_MS = 4.0
"""Silence kept before a clause. Piper adds 20 to 150 ms, which would delay the response."""

_CLAUSE_TAIL_MS, _SENTENCE_TAIL_MS = 40.0, 220.0
"""Silence kept after a clause within a sentence, and after a sentence: the pauses of an unhurried speaker."""


class Voice:
    """A loaded Piper voice. Blocking, and used by one thread at a time.

    Args:
        path: the `.onnx` file. Its `.onnx.json` must be in the same folder.
        threads: CPU threads for one clause.

    Raises:
        BadAudio: the voice's files are missing or damaged.
    """

    def __init__(self, path: Path, *, threads: int = 2) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        # Idle ONNX threads spin by default and would take cores from the language model.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            config = PiperConfig.from_dict(json.loads(Path(f"{path}.json").read_text(encoding="utf-8")))
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except FileNotFoundError as error:
            raise BadAudio(
                f"the voice {path} lacks {error.filename}: a Piper voice is an .onnx file and its .onnx.json"
            ) from None
        except Exception as error:  # onnxruntime raises its own exception type for each kind of damage
            raise BadAudio(f"the voice {path} cannot be read ({error}): run `rejoinder models verify`") from error
        self._piper = PiperVoice(session=session, config=config)
        self.name = path.stem

    def synthesize(self, clause: Clause, speed: float = 1.0) -> Samples:
        """Synthesize one clause: [T] float32 at 24 kHz, empty if the clause has nothing to pronounce.

        Args:
            speed: 1 is the voice's own speed, 2 twice as fast.
        """
        text = speakable(clause.text)
        if not text:
            return np.zeros(0, np.float32)
        rate = self._piper.config.sample_rate
        config = SynthesisConfig(length_scale=self._piper.config.length_scale / speed)
        chunks = [chunk.audio_float_array for chunk in self._piper.synthesize(text, config)]
        samples = np.concatenate(chunks or [np.zeros(0, np.float32)])
        tail = _SENTENCE_TAIL_MS if clause.ends_sentence else _CLAUSE_TAIL_MS
        return resample(trim_silence(samples, rate, lead_ms=_LEAD_MS, tail_ms=tail), rate, OUTPUT_RATE)
