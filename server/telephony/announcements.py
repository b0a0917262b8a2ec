"""Announcements: fixed sentences that calls speak verbatim, such as greetings and silence prompts. Audio is cached."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np

from server.budgets import ANNOUNCEMENTS, Kept
from voice.audio.codec import OUTPUT_RATE, Encoding, encode
from voice.audio.resampling import resample
from voice.events import NO_SAMPLES
from voice.speech_models import SpeechModels
from voice.tts import Voices


@dataclass
class _Synthesis:
    """A sentence that is being synthesized, and the number of calls that wait for it."""

    task: asyncio.Task[bytes]
    waiting: int = 0


class Announcements:
    """The announcements of all calls.

    Args:
        speech_models: provide the voices.
    """

    def __init__(self, speech_models: SpeechModels) -> None:
        self._speech_models = speech_models
        self._kept = Kept[bytes](ANNOUNCEMENTS)
        self._syntheses: dict[str, _Synthesis] = {}

    @property
    def voices(self) -> Voices:
        """The voices that calls choose from."""
        return self._speech_models.voices

    async def audio(self, text: str, voice: str, speed: float, encoding: Encoding, rate: int) -> bytes:
        """A sentence as audio in a carrier's encoding. An error of the voice is raised to every waiting caller."""
        name = f"{voice} {speed} {encoding} {rate} {text}"
        audio = self._kept.get(name)
        if audio is None:
            audio = await self._shared(name, text, voice, speed, encoding, rate)
        self._kept.put(name, audio, len(audio))  # again, as the one that was not used for longest is dropped first
        return audio

    async def _shared(self, name: str, text: str, voice: str, speed: float, encoding: Encoding, rate: int) -> bytes:
        """Synthesize a sentence once for all calls that want it now. It is given up once all of them have ended."""
        if name not in self._syntheses:
            self._syntheses[name] = _Synthesis(
                asyncio.create_task(self._synthesize(text, voice, speed, encoding, rate))
            )
        synthesis = self._syntheses[name]
        synthesis.waiting += 1
        try:
            return await asyncio.shield(synthesis.task)
        finally:
            synthesis.waiting -= 1
            if not synthesis.waiting:
                synthesis.task.cancel()
                del self._syntheses[name]

    async def _synthesize(self, text: str, voice: str, speed: float, encoding: Encoding, rate: int) -> bytes:
        models = self._speech_models
        clauses = [speech.audio async for speech in models.speech(text, models.voices.find(voice), speed)]
        return encode(resample(np.concatenate([NO_SAMPLES, *clauses]), OUTPUT_RATE, rate), encoding)
