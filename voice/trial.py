"""Asks recorded questions in real time through the whole pipeline, to see how quickly it answers on this machine.

What follows from the latencies is decided elsewhere (`server/serving/model_choice.py`).
"""

from __future__ import annotations

import asyncio
import gc
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import cycle, islice

import numpy as np

from agent.language_model import LanguageModel
from voice import events
from voice.audio.codec import RECOGNITION_RATE, Samples
from voice.session import VoiceSession
from voice.speech_models import SpeechModels

_BLOCK = RECOGNITION_RATE // 50
"""Samples of a block of audio, 20 ms."""

_SETTLE_S = 0.3
"""From the start of a conversation to the question; people take longer."""

_LONGEST_S = 4.0
"""A question that is not answered by then counts as if it had been answered then."""

_ALONE = 3
"""Questions that one conversation asks after the first, which is discarded: it reads the instructions."""

_QUESTION_S = 3.0
"""What a question takes with its answer."""

_MOST_TOGETHER = 64

BUDGET_S = 20.0
"""For the trials of all models together."""


class TrialInterrupted(Exception):
    """The machine is needed for something else."""


class TrialFailed(Exception):
    """A response failed. The message is the reason."""


@dataclass(frozen=True)
class Latencies:
    """Turn latencies, from the last sample of the question to the first audible sample of the response, ms.

    Attributes:
        alone: of one conversation, in the order in which its questions were asked.
        together: the mean of so many conversations that ask at the same moment, which seldom happens.
    """

    alone: tuple[int, ...]
    together: Mapping[int, int] = field(default_factory=dict)

    @property
    def median(self) -> int:
        """Of one conversation."""
        return round(statistics.median(self.alone))

    def conversations(self, target_ms: float) -> int:
        """How many conversations at the same moment are answered in time, on average; at least 1."""
        return max((number for number, mean in self.together.items() if mean <= target_ms), default=1)


async def measure_latencies(
    new_language_model: Callable[[], LanguageModel],
    speech_models: SpeechModels,
    *,
    limit_ms: float,
    target_ms: float,
    budget_s: float = BUDGET_S,
    is_interrupted: Callable[[], bool] = lambda: False,
    on_progress: Callable[[int], None] = lambda asked: None,
) -> Latencies:
    """Ask questions one after the other, then in two conversations at the same moment, four, and so on.

    Args:
        limit_ms: a median beyond which the language model is not used; more conversations are not tried then.
        target_ms: the latency up to which more conversations are tried.
        budget_s: no question begins after so many seconds, but for the first two.
        is_interrupted: asked 50 times a second.
        on_progress: called with the number of questions that have been asked.

    Raises:
        TrialInterrupted: `is_interrupted` said so.
        TrialFailed: a response failed.
    """
    loop = asyncio.get_running_loop()
    over_at, questions, asked = loop.time() + budget_s - _QUESTION_S, cycle(recorded_questions()), 0

    async def ask(number: int) -> list[int]:
        nonlocal asked
        on_progress(asked)
        asked += number
        models = [new_language_model() for _ in range(number)]
        latencies = await _ask_together(models, speech_models, list(islice(questions, number)), is_interrupted)
        del models
        gc.collect()  # what ended conversations refer to in cycles, tens of megabytes each
        return latencies

    await ask(1)
    alone = list[int]()
    while not alone or (len(alone) < _ALONE and loop.time() < over_at):
        alone += await ask(1)
        if len(alone) > 1 and min(alone) > limit_ms:
            break
    together, number = dict[int, int](), 2
    if statistics.median(alone) <= min(limit_ms, target_ms):
        while number <= _MOST_TOGETHER and loop.time() < over_at:
            together[number] = round(statistics.mean(await ask(number)))
            if together[number] > target_ms:
                break
            number *= 2
    return Latencies(tuple(alone), together)


def recorded_questions() -> list[Samples]:
    from voice.audio.compressed import read_compressed  # late: commands that try nothing need no FFmpeg

    recordings = []
    for resource in sorted(files("voice.trial_questions").iterdir(), key=lambda one: one.name):
        if resource.name.endswith(".opus"):
            with resource.open("rb") as file:
                recordings.append(read_compressed(file, RECOGNITION_RATE))
    return recordings


async def _ask_together(
    language_models: Sequence[LanguageModel],
    speech_models: SpeechModels,
    questions: Sequence[Samples],
    is_interrupted: Callable[[], bool],
) -> list[int]:
    """Ask questions that end at the same moment, in a conversation each. Returns their latencies, ms."""
    loop = asyncio.get_running_loop()
    heard_at: list[float | None] = [None] * len(questions)
    ended, failures = float("inf"), list[str]()

    def listener(number: int) -> Callable[[events.SessionEvent], None]:
        def on_event(event: events.SessionEvent) -> None:
            now = loop.time()
            if isinstance(event, events.ResponseDone) and event.status == "failed":
                failures.append(event.reason or "no reason given")
            elif isinstance(event, events.ResponseAudio) and heard_at[number] is None and now >= ended:
                heard_at[number] = now  # a response before the end of the question has cut it off

        return on_event

    sessions = [VoiceSession(model, speech_models, listener(n)) for n, model in enumerate(language_models)]
    length = max(map(len, questions))
    silence = np.zeros(int(_LONGEST_S * RECOGNITION_RATE), np.float32)
    streams = [np.concatenate((np.zeros(length - len(one), np.float32), one, silence)) for one in questions]
    try:
        await asyncio.sleep(_SETTLE_S)
        began = loop.time()
        ended = began + length / RECOGNITION_RATE
        for start in range(0, len(streams[0]), _BLOCK):
            await asyncio.sleep(began + (start + _BLOCK) / RECOGNITION_RATE - loop.time())
            if is_interrupted():
                raise TrialInterrupted
            if failures:
                raise TrialFailed(failures[0])
            for number, session in enumerate(sessions):
                if heard_at[number] is None:
                    session.append(streams[number][start : start + _BLOCK], RECOGNITION_RATE)
            if all(heard_at):
                break
    finally:
        await asyncio.gather(*(session.close() for session in sessions))
    return [round(1000 * ((at or ended + _LONGEST_S) - ended)) for at in heard_at]
