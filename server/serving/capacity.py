"""How many conversations this machine carries: measured once, then kept in the cache folder.

What a turn takes is measured alone and with others that start at the same moment. A simulation of conversations that
take turns at random then says how many there may be before the slowest twentieth of turns becomes noticeably slower.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from agent.language_model import LanguageModel
from chat.types import Ask, Message
from server.serving.machine_speed import machine_speed
from server.serving.measurements import measured_once
from voice.asr import Utterance
from voice.audio.codec import OUTPUT_RATE, RECOGNITION_RATE, Samples
from voice.audio.resampling import resample
from voice.clauses import Clause, ClauseSplitter
from voice.speech_models import SpeechModels
from voice.turn_metrics import percentile

MAX_SLOWDOWN = 1.3
"""How much slower p95 may be than with one conversation."""

MAX_CAPACITY = 64

_VERSION = 2

_QUESTION = "What is the capital of France, and how many people live there?"

_INSTRUCTIONS = "Answer in two short sentences."

_MAX_TOKENS = 40
"""Of a response: two sentences."""

_TOGETHER = (1, 2, 4)
"""Turns that are measured together."""

_REPETITIONS = 3

_TURN_INTERVAL_S = 10.0
"""From one turn of a conversation to the next: a question of 3 s, a response of 5 s, and a moment to think."""

_QUESTION_S, _MIN_INTERIM_S, _MAX_INTERIM_SHARE = 3.0, 0.24, 1 / 3
"""While the user speaks for so long, interim transcripts are made, as often as `voice/timing.py` allows and never for
more than this share of the time."""

_READING_AHEAD = 1.3
"""Interim transcripts, and reading their words ahead, compared with the transcripts alone."""

_DISCARDED_RESPONSES = 0.5
"""Speculative responses that a turn starts in vain."""

_SOFT_END_S = 0.13
"""The silence before work begins; part of the latency, and the same with any number of conversations."""

_WAITS_S = ((0.12, 0.6), (0.47, 0.4))
"""After the soft end, how long the end of a turn is waited for, and how often: questions and statements
(`docs/reference/realtime.md`). Work that is done by then delays nobody."""

_SIMULATED_TURNS = 3000


@dataclass(frozen=True)
class TurnCosts:
    """What a turn takes.

    Attributes:
        first_audio_s: from the soft end to the first audio of the response, on average, by the number of turns that
            start together.
        rest_s: from there until the whole response is generated and synthesized, alone.
        transcription_s: of a question, alone.
    """

    first_audio_s: dict[int, float]
    rest_s: float
    transcription_s: float

    @property
    def background_s(self) -> float:
        """Work of a turn for which its own user does not wait, but others may: listening, speculation in vain, and the
        rest of the response."""
        listening_s = _QUESTION_S * min(_MAX_INTERIM_SHARE, self.transcription_s / _MIN_INTERIM_S) * _READING_AHEAD
        return listening_s + _DISCARDED_RESPONSES * self.first_audio_s[1] + self.rest_s

    def speed(self, active: int) -> float:
        """How fast each of `active` turns proceeds, compared with one alone."""
        measured = sorted(self.first_audio_s)
        below = max(number for number in measured if number <= max(1, active))
        above = min((number for number in measured if number >= active), default=None)
        if above is None:  # more than were measured: as if the last ones had to share
            return self._measured_speed(below) * below / active
        if above == below:
            return self._measured_speed(below)
        share = (active - below) / (above - below)
        return self._measured_speed(below) * (1 - share) + self._measured_speed(above) * share

    def _measured_speed(self, number: int) -> float:
        return min(1.0, self.first_audio_s[1] / self.first_audio_s[number])


def capacity(costs: TurnCosts) -> int:
    """The number of conversations up to which p95 of the turn latency stays within `MAX_SLOWDOWN` times that of one;
    at least 1."""
    numbers, limit_s = range(1, MAX_CAPACITY + 1), MAX_SLOWDOWN * simulated_p95(costs, 1)
    return max(1, bisect_right(numbers, limit_s, key=lambda number: simulated_p95(costs, number)))


def simulated_p95(costs: TurnCosts, conversations: int) -> float:
    """p95 of `simulated_latencies`."""
    return percentile(simulated_latencies(costs, conversations), 0.95)


def simulated_latencies(costs: TurnCosts, conversations: int) -> list[float]:
    """Seconds from the end of the speech to the first audio that may be heard, if turns are taken at random."""
    dice = random.Random(0)
    waits, weights = zip(*_WAITS_S, strict=True)
    work, background, now, latencies = costs.first_audio_s[1], costs.background_s, 0.0, list[float]()
    begins = [dice.uniform(0, _TURN_INTERVAL_S) for _ in range(conversations)]
    remaining = [0.0] * conversations  # work of the turn in progress; its first audio comes with `background` left
    started, heard = [0.0] * conversations, [True] * conversations
    while len(latencies) < _SIMULATED_TURNS:
        active = [one for one in range(conversations) if remaining[one] > 0]
        speed = costs.speed(len(active)) if active else 1.0
        ends = [now + max(0.0, remaining[one] - (0.0 if heard[one] else background)) / speed for one in active]
        until = min([*ends, *(begins[one] for one in range(conversations) if remaining[one] <= 0)])
        for one in active:
            remaining[one] -= (until - now) * speed
        now = until
        for one in range(conversations):
            if remaining[one] <= 1e-9:
                remaining[one] = 0.0
                if begins[one] <= now:
                    remaining[one], started[one], heard[one] = work + background, now, False
                    begins[one] = now + _TURN_INTERVAL_S * dice.uniform(0.5, 1.5)
            elif not heard[one] and remaining[one] <= background + 1e-9:
                heard[one] = True
                latencies.append(_SOFT_END_S + max(dice.choices(waits, weights)[0], now - started[one]))
    return latencies


def measured_capacity(
    speech_models: SpeechModels, new_language_model: Callable[[], LanguageModel], models: str, device: str
) -> int:
    """How many conversations this machine carries with these models, measured (for some seconds) if that has not been
    done yet.

    Args:
        models: names of the models, with which the measurement is kept.
        device: of the language model: `auto`, `cpu`, `cuda` or `cuda:N`.
    """
    name = f"{machine_speed(device).machine}: {models}"
    costs = measured_once(
        "capacity.json", _VERSION, TurnCosts, name, lambda: asyncio.run(measure(speech_models, new_language_model))
    )
    return capacity(costs)


async def measure(speech_models: SpeechModels, new_language_model: Callable[[], LanguageModel]) -> TurnCosts:
    """Run the work of turns: transcription of a spoken question, a response, its synthesis."""
    question = resample(speech_models.voices.default.synthesize(Clause(_QUESTION, True)), OUTPUT_RATE, RECOGNITION_RATE)
    await _run_turn(speech_models, new_language_model(), question)  # reads the instructions, which turns share
    first, rest, transcription = dict[int, float](), list[float](), list[float]()
    for number in _TOGETHER:
        times = []
        for _ in range(_REPETITIONS):
            turns = [_run_turn(speech_models, new_language_model(), question) for _ in range(number)]
            done = await asyncio.gather(*turns)
            times.append(statistics.fmean(first_audio for _, first_audio, _ in done))
            if number == 1:
                transcription.append(done[0][0])
                rest.append(done[0][2])
        first[number] = statistics.median(times)
    return TurnCosts(first, statistics.median(rest), statistics.median(transcription))


async def _run_turn(
    models: SpeechModels, language_model: LanguageModel, question: Samples
) -> tuple[float, float, float]:
    """Seconds to the transcript, to the first audio, and from there to the end."""
    loop, began = asyncio.get_running_loop(), time.perf_counter()
    utterance = Utterance(models.recognizer.for_language("en"))
    utterance.add(question)
    text = await loop.run_in_executor(
        models.recognition_executor, utterance.final, len(question), len(question), utterance.latest_request
    )
    transcript_s = time.perf_counter() - began
    splitter, first_audio_s = ClauseSplitter(), 0.0
    messages = [Message("system", _INSTRUCTIONS), Message("user", text or _QUESTION)]
    async for progress in language_model.reply(Ask(messages, max_tokens=_MAX_TOKENS)):
        clauses = splitter.push(progress.committed)
        for clause in [*clauses, *(splitter.flush() if progress.finished else [])]:
            await loop.run_in_executor(models.synthesis_executor, models.voices.default.synthesize, clause)
            first_audio_s = first_audio_s or time.perf_counter() - began
    total_s = time.perf_counter() - began
    return transcript_s, first_audio_s or total_s, total_s - (first_audio_s or total_s)
