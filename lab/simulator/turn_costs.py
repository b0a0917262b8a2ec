"""How long turns take when several conversations share a machine, by simulation, and how many there may be.

What a turn takes is given, alone and with others that start at the same moment. Conversations then take turns at
random. A server itself goes by what happens (`server/access/adaptive_limit.py`).
"""

from __future__ import annotations

import random
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

MAX_SLOWDOWN = 1.3
"""How much slower p95 may be than with one conversation."""

MAX_CAPACITY = 64

TURN_INTERVAL_S = 10.0
"""From one turn of a conversation to the next: a question of 3 s, a response of 5 s, and a moment to think."""

QUESTION_S, _MIN_INTERIM_S, _MAX_INTERIM_SHARE = 3.0, 0.24, 1 / 3
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
        listening_s = QUESTION_S * min(_MAX_INTERIM_SHARE, self.transcription_s / _MIN_INTERIM_S) * _READING_AHEAD
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
    return float(np.quantile(simulated_latencies(costs, conversations), 0.95))


def simulated_latencies(costs: TurnCosts, conversations: int) -> list[float]:
    """Seconds from the end of the speech to the first audio that may be heard, if turns are taken at random."""
    dice = random.Random(0)
    waits, weights = zip(*_WAITS_S, strict=True)
    work, background, now, latencies = costs.first_audio_s[1], costs.background_s, 0.0, list[float]()
    begins = [dice.uniform(0, TURN_INTERVAL_S) for _ in range(conversations)]
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
                    begins[one] = now + TURN_INTERVAL_S * dice.uniform(0.5, 1.5)
            elif not heard[one] and remaining[one] <= background + 1e-9:
                heard[one] = True
                latencies.append(_SOFT_END_S + max(dice.choices(waits, weights)[0], now - started[one]))
    return latencies
