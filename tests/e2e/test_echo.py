"""The assistant's own voice in the user's microphone, with real models: it neither interrupts nor is it transcribed."""

from __future__ import annotations

import asyncio
import re

import numpy as np
import pytest

from tests.e2e.conftest import path_of, say
from tests.fakes import FakeBrain
from voice import events
from voice.audio import HEARING_RATE, SPEAKING_RATE, Samples, resample
from voice.session import Session
from voice.stages import Stages, load_stages

ANSWER = "The old lion walked through the tall grass, and nobody heard him coming until it was far too late for them."
BLOCK = HEARING_RATE // 50
DELAY_S = 0.12
"""What network, buffers and the room put between our sending and the microphone."""


@pytest.fixture(scope="module")
def stages() -> Stages:
    return load_stages(path_of("whisper-base"), path_of("en_US-joe-medium"))


class Room:
    """A microphone beside the loudspeaker.

    Args:
        loudness: of the echo, beside what is played.
    """

    def __init__(self, stages: Stages, loudness: float) -> None:
        self.happened: list[events.SessionEvent] = []
        self.session = Session(FakeBrain(re.findall(r" ?\S+", ANSWER)), stages, self._on)
        self._loudness = loudness
        self._sound = np.zeros(60 * HEARING_RATE, np.float32)
        self._now = self._played = 0
        room = np.zeros(HEARING_RATE // 20)
        room[[0, 300, 700]] = 1.0, -0.3, 0.2
        self._room = np.convolve([0.3, 0.4, 0.3], room)

    def all(self, kind: type) -> list[events.SessionEvent]:
        return [event for event in self.happened if isinstance(event, kind)]

    async def hear(self, user: Samples) -> None:
        """The user's sound at 16 kHz in real time, and with it what comes back."""
        loop = asyncio.get_running_loop()
        began, start = loop.time(), self._now
        for first in range(0, len(user) - BLOCK, BLOCK):
            await asyncio.sleep(max(0.0, began + (self._now - start + BLOCK) / HEARING_RATE - loop.time()))
            echo = self._sound[self._now : self._now + BLOCK]
            self.session.append(user[first : first + BLOCK] + echo, HEARING_RATE)
            self._now += BLOCK

    def _on(self, event: events.SessionEvent) -> None:
        self.happened.append(event)
        if isinstance(event, events.AnswerAudio):
            heard = resample(event.samples, SPEAKING_RATE, HEARING_RATE)
            echo = self._loudness * np.convolve(heard, self._room)
            begin = max(self._now + int(DELAY_S * HEARING_RATE), self._played)
            self._sound[begin : begin + len(echo)] += echo[: len(self._sound) - begin].astype(np.float32)
            self._played = begin + len(heard)
        elif isinstance(event, events.SpeechStarted):  # the client falls silent
            self._sound[self._now + int(DELAY_S * HEARING_RATE) :] = 0.0
            self._played = 0


@pytest.mark.parametrize("loudness", [0.05, 0.2])
async def test_the_answer_neither_interrupts_itself_nor_reaches_the_transcript(stages: Stages, loudness: float) -> None:
    def user(text: str, after: float) -> Samples:
        return resample(say(stages.voice, text, 0.3, after), SPEAKING_RATE, HEARING_RATE)

    room = Room(stages, loudness)
    await room.hear(user("Please tell me a short story about an animal.", 3.0))
    assert len(room.all(events.SpeechStarted)) == 1, "the answer interrupted itself"
    assert room.all(events.AnswerAudio)
    await room.hear(user("Stop, what is the weather like in London today?", 1.5))
    await room.session.close()
    transcripts = [event.text.lower() for event in room.happened if isinstance(event, events.FinalTranscript)]
    assert "animal" in transcripts[0] and "london" in transcripts[-1]
    foreign = set(re.findall(r"\w+", ANSWER.lower())) - set(re.findall(r"\w+", "the a and it for in was"))
    assert not foreign & set(re.findall(r"\w+", " ".join(transcripts[1:])))
