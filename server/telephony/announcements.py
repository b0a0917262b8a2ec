"""Announcements: fixed sentences that calls speak verbatim, such as greetings and silence prompts. Audio is cached."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

import numpy as np

from voice.audio.codec import OUTPUT_RATE, Encoding, encode
from voice.audio.resampling import resample
from voice.events import NO_SAMPLES
from voice.speech_models import SpeechModels
from voice.tts import Voices

_MAX_CACHED = 256
"""Cached sentences: 20 MB at ten seconds each."""

_Key = tuple[str, str, float, Encoding, int]


class Announcements:
    """The announcements of all calls.

    Args:
        speech_models: provide the voices.
    """

    def __init__(self, speech_models: SpeechModels) -> None:
        self._speech_models = speech_models
        self._cache: OrderedDict[_Key, asyncio.Task[bytes]] = OrderedDict()

    @property
    def voices(self) -> Voices:
        """The voices that calls choose from."""
        return self._speech_models.voices

    async def audio(self, text: str, voice: str, speed: float, encoding: Encoding, rate: int) -> bytes:
        """A sentence as audio in a carrier's encoding. An error of the voice is raised to every waiting caller."""
        key = (text, voice, speed, encoding, rate)
        if key not in self._cache:
            self._cache[key] = asyncio.create_task(self._synthesize(*key))
            while len(self._cache) > _MAX_CACHED:
                self._cache.popitem(last=False)
        self._cache.move_to_end(key)
        try:
            return await asyncio.shield(self._cache[key])
        except Exception:
            self._cache.pop(key, None)
            raise

    async def _synthesize(self, text: str, voice: str, speed: float, encoding: Encoding, rate: int) -> bytes:
        models = self._speech_models
        clauses = [samples async for samples in models.speech(text, models.voices.find(voice), speed)]
        return encode(resample(np.concatenate([NO_SAMPLES, *clauses]), OUTPUT_RATE, rate), encoding)
