"""The loaded models that all conversations share, and the threads they run on."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from voice.asr import Recognizer
from voice.audio import HEARING_RATE
from voice.clauses import Clause
from voice.tts import Voice
from voice.vad import Silero, bundled_silero


@dataclass(frozen=True)
class Stages:
    """The stages of a conversation but for its brain.

    Attributes:
        hearing, speaking: one thread each; both models keep their cores busy with one request at a time.
    """

    recognizer: Recognizer
    silero: Silero
    voice: Voice
    hearing: Executor
    speaking: Executor


def load_stages(recognizer: Path, voice: Path) -> Stages:
    """Load the models and run each once, so that the first user does not wait for it.

    Args:
        recognizer: a CTranslate2 Whisper's folder.
        voice: a Piper voice's `.onnx` file.

    Raises:
        BadAudio: a model cannot be read.
    """
    stages = Stages(
        Recognizer(recognizer),
        Silero(bundled_silero()),
        Voice(voice),
        ThreadPoolExecutor(1, thread_name_prefix="rejoinder-hearing"),
        ThreadPoolExecutor(1, thread_name_prefix="rejoinder-speaking"),
    )
    noise = (np.random.default_rng(0).standard_normal(2 * HEARING_RATE) * 0.01).astype(np.float32)
    stages.hearing.submit(stages.recognizer.transcribe, noise).result()
    stages.speaking.submit(stages.voice.say, Clause("Ready to talk.", True)).result()
    return stages
