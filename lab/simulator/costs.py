"""What the turns of a turn log cost, at the price of a hosted service and on machines of one's own.

The log says when turns took place and what they read and wrote. How long they last and what machines carry is assumed;
`ASSUMPTIONS` is printed with every plan. The machines are those of the simulated fleet (`fleet.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lab.simulator.fleet import DAY_S, Curve, Fleet, ReplicaKind, least_connections
from lab.simulator.turn_costs import QUESTION_S, TURN_INTERVAL_S
from server.access.prices import PriceList
from server.access.usage import Usage
from server.observability.turn_log import TurnRecord

RESPONSE_S = 5.0
"""Of a spoken response, as the simulation of turns has it."""

MONTH_DAYS = 30

ASSUMPTIONS = (
    f"A turn takes {TURN_INTERVAL_S:.0f} s of conversation: {QUESTION_S:.0f} s of question, {RESPONSE_S:.0f} s of "
    "response, and a moment to think. So conversations at once are turns a second times that.",
    "The days of the log are alike, and its hours (UTC) are those of every day.",
    "Machines are billed while they run, start and drain included; traffic, storage and people are not counted.",
    "Scaled machines follow the server's own rule, with room for what arrives while another machine starts.",
)


@dataclass(frozen=True)
class Load:
    """A day's conversations.

    Attributes:
        peak: conversations at once at the busiest moment, on average.
        curve: the course of the day.
        turns: of the day.
    """

    name: str
    peak: float
    curve: Curve
    turns: float


@dataclass(frozen=True)
class MonthlyCost:
    """What a load costs in a month.

    Attributes:
        hosted: at the hosted price.
        fixed, scaled: on machines that always run, enough for the peak, and on machines that follow the load.
        fixed_replicas, scaled_replicas: how many there are at most.
        refused: share of the conversations for which the scaled machines had no room.
    """

    load: Load
    hosted: float
    fixed: float
    fixed_replicas: int
    scaled: float
    scaled_replicas: int
    refused: float


def usage_of(turns: Sequence[TurnRecord]) -> Usage:
    """What the turns used, as far as the log says, and by the assumptions otherwise."""

    def total(field: str) -> int:
        return sum(int(turn.details.get(field) or 0) for turn in turns)

    spoken = sum(turn.latency_ms is not None for turn in turns)
    return Usage(
        seconds=TURN_INTERVAL_S * len(turns),
        audio_in_s=QUESTION_S * spoken,
        audio_out_s=RESPONSE_S * spoken,
        turns=len(turns),
        input_tokens=total("prompt_tokens"),
        cached_tokens=total("cached_tokens"),
        output_tokens=total("tokens"),
    )


def loads_of(turns: Sequence[TurnRecord], days: float, burst: float) -> tuple[Load, Load, Load]:
    """The load as it was logged, the same turns spread evenly over the day, and the logged day with a burst: its
    busiest hour, so many times as busy.

    Raises:
        ValueError: there are no turns.
    """
    if not turns:
        raise ValueError("the turn log has no turns of these days: there is nothing to plan for")
    hours = np.bincount([int(turn.ended_at % DAY_S // 3600) for turn in turns], minlength=24) / days
    bursting = hours.copy()
    bursting[int(hours.argmax())] *= burst
    even = np.full(24, hours.mean())
    named = (("as logged", hours), ("steady", even), (f"burst, {burst:g} times the busiest hour", bursting))
    logged, steady, burst_load = (_load(name, by_hour) for name, by_hour in named)
    return logged, steady, burst_load


def _load(name: str, by_hour: npt.NDArray[np.float64]) -> Load:
    centres, highest = 3600.0 * (np.arange(24) + 0.5), float(by_hour.max())
    minutes = np.interp(60.0 * np.arange(1440), centres, by_hour / highest, period=DAY_S).tolist()

    def curve(second: float) -> float:
        return float(minutes[int(second // 60) % 1440])

    return Load(name, highest * TURN_INTERVAL_S / 3600, curve, float(by_hour.sum()))


def monthly_costs(
    loads: Sequence[Load], used: Usage, hosted: PriceList, kind: ReplicaKind, seed: int = 1
) -> Iterator[MonthlyCost]:
    """What each load costs.

    Args:
        used: by `used.turns` turns, from which the cost of one follows.
    """
    each = hosted.cost(used) / used.turns
    for load in loads:
        fixed, scaled = (
            Fleet(kind, load.peak, least_connections, seed, fixed=is_fixed, curve=load.curve).run()
            for is_fixed in (True, False)
        )
        price = kind.dollars_per_hour * MONTH_DAYS
        yield MonthlyCost(
            load,
            each * load.turns * MONTH_DAYS,
            fixed.replica_hours * price,
            fixed.peak_replicas,
            scaled.replica_hours * price,
            scaled.peak_replicas,
            scaled.refused / max(1, scaled.calls),
        )
