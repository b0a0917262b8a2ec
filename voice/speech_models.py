"""The speech models that all conversations share, and the threads they run on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from voice.asr import Recognizer, Utterance
from voice.audio.codec import RECOGNITION_RATE, Samples
from voice.audio.vad import Silero, bundled_silero
from voice.captions import CaptionedUtterance
from voice.chunks import Chunk
from voice.clauses import Clause, ClauseSplitter
from voice.lexicon import NO_LEXICON, Lexicon
from voice.speech_device import CPU, SpeechDevice
from voice.speech_times import Speech

if TYPE_CHECKING:
    from voice.smart_turn import AudioTurnDetector
    from voice.tts import Voice, Voices

_log = logging.getLogger("rejoinder.voice")

_RECOGNITION_THREADS = 8

APOLOGY = "Sorry, something went wrong. Please say that again."
"""Spoken when a response fails."""


@dataclass(frozen=True)
class SpeechModels:
    """Every model of a conversation except its language model.

    Attributes:
        turn_detector: judges by the audio whether a turn is over; None if the words alone decide.
        recognition_executor: threads that wait for the recognizer, or for another transcription of the same turn.
        synthesis_executor, turn_detection_executor: one thread each; these models use all their cores for one request.
        apology: what is said when a response fails; None to say nothing.
        caption_slot: held during an interim transcription for captions. All sessions together make one at a time, so
            that a core remains for conversations.
    """

    recognizer: Recognizer
    silero: Silero
    voices: Voices
    turn_detector: AudioTurnDetector | None
    recognition_executor: Executor
    synthesis_executor: Executor
    turn_detection_executor: Executor
    apology: Chunk | None = None
    caption_slot: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))

    def new_utterance(
        self, language: str, names: Callable[[], Sequence[str]] = tuple, *, captions: bool = False
    ) -> Utterance:
        """The transcription of a turn in a language, a two-letter code.

        Args:
            names: delivers those that the user may say, the most likely ones first. Called when they are needed, on
                the thread that transcribes.
            captions: whether its interim transcripts have words with times.
        """
        return (CaptionedUtterance if captions else Utterance)(self.recognizer.for_language(language), names)

    async def speech(self, text: str, voice: Voice, speed: float) -> AsyncIterator[Speech]:
        """A text, spoken clause by clause."""
        splitter, loop = ClauseSplitter(), asyncio.get_running_loop()
        for clause in [*splitter.push(text), *splitter.flush()]:
            yield await loop.run_in_executor(self.synthesis_executor, voice.speak, clause, speed)

    def audio_turn_completion(self, audio: Samples) -> float | None:
        """The turn detector's judgement of a turn, [T] at 16 kHz. If there is none, or it fails, the words decide."""
        try:
            return None if self.turn_detector is None else self.turn_detector(audio)
        except Exception:
            _log.exception("the audio turn detector failed; the words decide")
            return None


class UnloadedSpeechModels(SpeechModels):
    """Speech models that are loaded when one of them is needed, which is never in a conversation without audio.

    Args:
        load: loads them.
    """

    def __init__(self, load: Callable[[], SpeechModels]) -> None:
        vars(self)["_load"] = load

    def __getattr__(self, name: str) -> Any:
        loaded = self._load()
        vars(self).update(vars(loaded))
        return getattr(loaded, name)


def load_speech_models(
    recognizer: Path,
    voices: Sequence[Path],
    device: SpeechDevice = CPU,
    lexicon: Lexicon = NO_LEXICON,
    recognition_threads: int = 1,
) -> SpeechModels:
    """Load the models and run each once, so that the first user does not wait for the warm-up.

    Args:
        recognizer: folder of a CTranslate2 Whisper model.
        voices: Piper voices' `.onnx` files and Kokoro voices' `.bin` files; the first is the default.
        device: where recognition and synthesis run. The voice activity and turn detectors, which are small, run on the
            CPU.
        lexicon: how the voices say some words.
        recognition_threads: CPU threads of one transcription.

    Raises:
        BadAudio: a model cannot be read.
        ValueError: two voices have the same name.
        SpeechDeviceUnavailable: they cannot run on that device.
    """
    from voice.smart_turn import load_audio_turn_detector  # late: a text conversation needs neither
    from voice.tts import load_voices

    synthesis_executor = ThreadPoolExecutor(1, thread_name_prefix="rejoinder-synthesis")

    def load_synthesis() -> tuple[Voices, Speech]:
        loaded = load_voices(voices, device, lexicon)
        for name in loaded.names:
            loaded.find(name).synthesize(Clause("Ready to talk.", True))
        return loaded, loaded.default.speak(Clause(APOLOGY, True))

    synthesis = synthesis_executor.submit(load_synthesis)  # while recognition is loaded
    whisper, turn_detector = (
        Recognizer(recognizer, threads=recognition_threads, device=device),
        load_audio_turn_detector(),
    )
    recognition_executor = ThreadPoolExecutor(_RECOGNITION_THREADS, thread_name_prefix="rejoinder-recognition")
    turn_detection_executor = ThreadPoolExecutor(1, thread_name_prefix="rejoinder-turn-detection")
    noise = (np.random.default_rng(0).standard_normal(2 * RECOGNITION_RATE) * 0.01).astype(np.float32)
    recognition_executor.submit(whisper.transcribe, noise).result()
    if turn_detector is not None:
        turn_detection_executor.submit(turn_detector, noise).result()
    loaded_voices, apology = synthesis.result()
    return SpeechModels(
        whisper,
        Silero(bundled_silero()),
        loaded_voices,
        turn_detector,
        recognition_executor,
        synthesis_executor,
        turn_detection_executor,
        Chunk(APOLOGY, apology),
    )
