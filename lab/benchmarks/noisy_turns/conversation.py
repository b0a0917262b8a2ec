"""Plays turns to a whole session on a virtual clock: the real detector, recognizer and endpointer, and a fake language
model, so that the wait for the end of a turn can be measured on a busy machine, faster than real time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any, TypeVar

from lab.benchmarks.noisy_turns.turns import NoisyTurn
from tests.fakes import FakeLanguageModel, FakeVoice, InlineExecutor, run_on_virtual_clock
from voice import events
from voice.asr import Recognizer
from voice.audio.codec import RECOGNITION_RATE
from voice.audio.vad import Silero
from voice.session import VoiceSession
from voice.speech_models import SpeechModels
from voice.tts import Voices

T = TypeVar("T")

_BLOCK = RECOGNITION_RATE // 50
_TRANSCRIPTION_S = 0.12
"""What a transcription takes on the virtual clock: the median of spoken turns on two cores."""


class DelayedExecutor(Executor):
    """Runs work at once; its result arrives after a fixed time on the event loop's clock."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done, future = InlineExecutor().submit(fn, *args, **kwargs), Future[T]()

        def deliver() -> None:
            if future.cancelled():
                return
            error = done.exception()
            if error is None:
                future.set_result(done.result())
            else:
                future.set_exception(error)

        asyncio.get_running_loop().call_later(_TRANSCRIPTION_S, deliver)
        return future


@dataclass(frozen=True)
class HeardTurn:
    """What a session made of one turn.

    Attributes:
        decided_ms: from the true end of the speech to the decision that the turn is over; None if there was none.
        cut_off: a turn ended before the last word.
        transcript: of everything up to that decision.
    """

    decided_ms: float | None
    cut_off: bool
    transcript: str


def converse(turn: NoisyTurn, recognizer: Recognizer, silero: Silero, completion: float | None) -> HeardTurn:
    """Play a turn to a new session.

    Args:
        completion: what the language model says of every text: the probability that it is complete.
    """

    async def run() -> HeardTurn:
        loop = asyncio.get_running_loop()
        log: list[tuple[float, events.SessionEvent]] = []
        instant, delayed = InlineExecutor(), DelayedExecutor()
        voice: Any = FakeVoice()
        models = SpeechModels(recognizer, silero, Voices([voice]), None, delayed, instant, instant)
        session = VoiceSession(
            FakeLanguageModel(completion=completion),
            models,
            lambda event: log.append((loop.time(), event)),
            clock=loop.time,
        )
        began = loop.time()
        for start in range(0, len(turn.audio), _BLOCK):
            await asyncio.sleep(_BLOCK / RECOGNITION_RATE)
            session.append(turn.audio[start : start + _BLOCK], RECOGNITION_RATE)
        await asyncio.sleep(2)
        await session.close()
        ends = [(1000 * (time - began), event) for time, event in log if isinstance(event, events.SpeechStopped)]
        ends = [(time, event) for time, event in ends if event.audio_end_ms > turn.speech_start_ms + 200]
        decided = next((time for time, _ in ends if time >= turn.speech_end_ms), None)
        texts = [event.text for _, event in log if isinstance(event, events.FinalTranscript)]
        cut_off = any(time < turn.speech_end_ms for time, _ in ends)
        return HeardTurn(None if decided is None else decided - turn.speech_end_ms, cut_off, " / ".join(texts))

    return run_on_virtual_clock(run)
