"""The assistant's voice in the user's microphone, with real models: it neither interrupts nor is transcribed."""

from __future__ import annotations

import asyncio
import re

import numpy as np
import pytest

from tests.e2e.conftest import model_path, synthesize
from tests.fakes import FakeLanguageModel
from tests.real_time import retried_under_load
from voice import events
from voice.audio.codec import OUTPUT_RATE, RECOGNITION_RATE, Samples
from voice.audio.resampling import resample
from voice.session import VoiceSession
from voice.speech_models import SpeechModels, load_speech_models

RESPONSE = "The old lion walked through the tall grass, and nobody heard him coming until it was far too late for them."
BLOCK = RECOGNITION_RATE // 50
DELAY_S = 0.12
"""Delay between sending audio and its echo in the microphone: network, buffers and the room."""


@pytest.fixture(scope="module")
def speech_models() -> SpeechModels:
    return load_speech_models(model_path("whisper-base"), [model_path("en_US-joe-medium")])


class Room:
    """A microphone next to a loudspeaker.

    Args:
        loudness: of the echo, relative to what is played.
    """

    def __init__(self, speech_models: SpeechModels, loudness: float) -> None:
        self.events: list[events.SessionEvent] = []
        self.session = VoiceSession(FakeLanguageModel(re.findall(r" ?\S+", RESPONSE)), speech_models, self._on)
        self._loudness = loudness
        self._sound = np.zeros(60 * RECOGNITION_RATE, np.float32)
        self._now = self._played = 0
        room = np.zeros(RECOGNITION_RATE // 20)
        room[[0, 300, 700]] = 1.0, -0.3, 0.2
        self._room = np.convolve([0.3, 0.4, 0.3], room)

    def all(self, kind: type) -> list[events.SessionEvent]:
        return [event for event in self.events if isinstance(event, kind)]

    async def speak(self, user: Samples) -> None:
        """Send the user's speech at 16 kHz in real time, mixed with the echo."""
        loop = asyncio.get_running_loop()
        started_at, start = loop.time(), self._now
        for first in range(0, len(user) - BLOCK, BLOCK):
            await asyncio.sleep(max(0.0, started_at + (self._now - start + BLOCK) / RECOGNITION_RATE - loop.time()))
            echo = self._sound[self._now : self._now + BLOCK]
            self.session.append(user[first : first + BLOCK] + echo, RECOGNITION_RATE)
            self._now += BLOCK

    def _on(self, event: events.SessionEvent) -> None:
        self.events.append(event)
        if isinstance(event, events.ResponseAudio):
            heard = resample(event.samples, OUTPUT_RATE, RECOGNITION_RATE)
            echo = self._loudness * np.convolve(heard, self._room)
            begin = max(self._now + int(DELAY_S * RECOGNITION_RATE), self._played)
            self._sound[begin : begin + len(echo)] += echo[: len(self._sound) - begin].astype(np.float32)
            self._played = begin + len(heard)
        elif isinstance(event, events.SpeechStarted):  # the client stops playback
            self._sound[self._now + int(DELAY_S * RECOGNITION_RATE) :] = 0.0
            self._played = 0


@retried_under_load(attempts=3)
async def test_the_response_neither_interrupts_itself_nor_appears_in_the_transcript(
    speech_models: SpeechModels,
) -> None:
    """A quiet and a loud echo, in two conversations at the same time."""
    await asyncio.gather(*(interrupt_a_response(speech_models, loudness) for loudness in (0.05, 0.2)))


async def interrupt_a_response(speech_models: SpeechModels, loudness: float) -> None:
    def user(text: str, after: float) -> Samples:
        return resample(synthesize(speech_models.voices.default, text, 0.3, after), OUTPUT_RATE, RECOGNITION_RATE)

    room = Room(speech_models, loudness)
    await room.speak(user("Please tell me a short story about an animal.", 3.0))
    assert len(room.all(events.SpeechStarted)) == 1, f"the response interrupted itself at {loudness}"
    assert room.all(events.ResponseAudio), loudness
    await room.speak(user("Stop, what is the weather like in London today?", 1.5))
    await room.session.close()
    transcripts = [event.text.lower() for event in room.events if isinstance(event, events.FinalTranscript)]
    assert "animal" in transcripts[0] and "london" in transcripts[-1], loudness
    response_words = set(re.findall(r"\w+", RESPONSE.lower())) - set(re.findall(r"\w+", "the a and it for in was"))
    assert not response_words & set(re.findall(r"\w+", " ".join(transcripts[1:]))), loudness
