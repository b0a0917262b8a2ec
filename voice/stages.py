"""The loaded models that all conversations share, and the threads they run on."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from voice.asr import Recognizer
from voice.audio import HEARING_RATE
from voice.clauses import Clause
from voice.prosody import EndingSound, ending_sound
from voice.tts import Voice
from voice.vad import Silero, bundled_silero

_WAITING = 8


@dataclass(frozen=True)
class Stages:
    """The stages of a conversation but for its brain.

    Attributes:
        ending: judges by the sound whether a turn is over.
        hearing: threads that wait for the recognizer, or for what another one transcribes of the same turn.
        speaking, judging: one thread each; the models keep their cores busy with one request at a time.
    """

    recognizer: Recognizer
    silero: Silero
    voice: Voice
    ending: EndingSound
    hearing: Executor
    speaking: Executor
    judging: Executor


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
        ending_sound(),
        ThreadPoolExecutor(_WAITING, thread_name_prefix="rejoinder-hearing"),
        ThreadPoolExecutor(1, thread_name_prefix="rejoinder-speaking"),
        ThreadPoolExecutor(1, thread_name_prefix="rejoinder-judging"),
    )
    noise = (np.random.default_rng(0).standard_normal(2 * HEARING_RATE) * 0.01).astype(np.float32)
    stages.hearing.submit(stages.recognizer.transcribe, noise).result()
    stages.judging.submit(stages.ending.ends, noise).result()
    stages.speaking.submit(stages.voice.say, Clause("Ready to talk.", True)).result()
    return stages
