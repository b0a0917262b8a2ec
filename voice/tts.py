"""Clause to sound: Piper, with the silence around each clause cut to what a listener expects."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnxruntime
from piper import PiperConfig, PiperVoice, SynthesisConfig

from voice.audio import SPEAKING_RATE, BadAudio, Samples, resample, trim
from voice.clauses import Clause, speakable

_LEAD_MS = 4.0
"""Silence kept in front of a clause. Piper puts 20 to 150 ms there, which the listener would wait through."""

_CLAUSE_TAIL_MS, _SENTENCE_TAIL_MS = 40.0, 220.0
"""Silence kept behind a clause that goes on, and behind a sentence: the pauses of an unhurried speaker."""


class Voice:
    """A loaded Piper voice. Blocking; one thread at a time.

    Args:
        path: the `.onnx` file, with its `.onnx.json` beside it.
        threads: processor threads for one clause.

    Raises:
        BadAudio: the voice's files are missing or damaged.
    """

    def __init__(self, path: Path, *, threads: int = 2) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        # Idle ONNX threads spin by default, and would take the cores that the language model computes on.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            config = PiperConfig.from_dict(json.loads(Path(f"{path}.json").read_text(encoding="utf-8")))
            session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except FileNotFoundError as error:
            raise BadAudio(
                f"the voice {path} lacks {error.filename}: a Piper voice is an .onnx file with its .onnx.json"
            ) from None
        except Exception as error:  # onnxruntime raises types of its own for each kind of damage
            raise BadAudio(f"the voice {path} cannot be read ({error}): run `rejoinder models verify`") from error
        self._piper = PiperVoice(session=session, config=config)
        self.name = path.stem

    def say(self, clause: Clause, speed: float = 1.0) -> Samples:
        """Speak one clause: [T] float32 at 24 kHz, empty when there is nothing to say aloud.

        Args:
            speed: 1 is the voice's own pace, 2 twice as fast.
        """
        text = speakable(clause.text)
        if not text:
            return np.zeros(0, np.float32)
        rate = self._piper.config.sample_rate
        pace = SynthesisConfig(length_scale=self._piper.config.length_scale / speed)
        chunks = [chunk.audio_float_array for chunk in self._piper.synthesize(text, pace)]
        sound = np.concatenate(chunks or [np.zeros(0, np.float32)])
        tail = _SENTENCE_TAIL_MS if clause.ends_sentence else _CLAUSE_TAIL_MS
        return resample(trim(sound, rate, lead_ms=_LEAD_MS, tail_ms=tail), rate, SPEAKING_RATE)
