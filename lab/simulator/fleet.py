"""Plans a fleet of replicas: a day of calls, from 100 to 100,000 at the same time, without a single machine.

    python -m lab.simulator.fleet [--calls 100 1000 10000 100000] [--replica l4] [--seed 1]

**Its figures are simulated.** Calls arrive as in a call centre's day (Poisson, with a daily curve), their lengths have
a heavy tail, replicas start cold and are drained before they stop. The number of replicas is the one of
`server/serving/scaling.py`; how many conversations a replica carries, and how long turns take with so many, comes from
`turn_costs.py`. What a turn costs was measured on a CPU or is estimated for a GPU, as the table says.
`lab.benchmarks.crowd_simulation` looks into one GPU.

One step is a second. All of its calls are placed together, in groups that are small against the number of replicas.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from lab.simulator.turn_costs import TurnCosts, capacity, simulated_latencies
from server.serving.scaling import ScaleInDelay, replicas_for

Counts = npt.NDArray[np.int64]

DAY_S = 86_400
MEAN_CALL_S, CALL_SIGMA, LONGEST_CALL_S = 200.0, 1.1, 3600.0
"""Lengths are log-normal: half of the calls are shorter than 110 s, one in a hundred is longer than 23 minutes. The
longest is what the server allows."""

_NIGHT = 0.1
"""Calls at the quietest hour, compared with the busiest."""

_PEAKS = ((11.0, 2.5, 1.0), (15.5, 3.0, 0.9))
"""Hour, width in hours and height of the two peaks of a day."""

SCALE_IN_S = 600.0
_SCALE_EVERY_S, _SAMPLE_EVERY_S = 5, 10

EVENT_LOOP_CONVERSATIONS = 24
"""What one process carries, however fast its GPU is: the server's event loop is full with 20 to 30 conversations
(docs/guide/gpu.md, measured)."""


def staged_costs(recognition_s: float, language_s: float, synthesis_s: float, rest_s: float) -> TurnCosts:
    """What turns take that start together, if two recognitions run at a time and one synthesis, as in the server.

    Args:
        language_s: until the first clause. The same for few turns together, as they share forward passes.
    """

    def first_audio_s(together: int) -> float:
        free_at, total_s = 0.0, 0.0
        for turn in range(together):
            free_at = max(free_at, recognition_s * (turn // 2 + 1) + language_s) + synthesis_s
            total_s += free_at
        return total_s / together

    return TurnCosts({together: first_audio_s(together) for together in (1, 2, 4)}, rest_s, recognition_s)


@dataclass(frozen=True)
class ReplicaKind:
    """What a replica is, and costs.

    Attributes:
        gpus: of one replica.
        dollars_per_hour: of one replica. An assumption: prices differ by provider and year.
        start_s: until a replica takes calls: its machine, and its models.
        source: where its costs come from.
        conversations: that it carries, if that is known; otherwise its costs say.
    """

    costs: TurnCosts
    gpus: float
    dollars_per_hour: float
    start_s: float
    source: str
    conversations: int | None = None

    @cached_property
    def capacity(self) -> int:
        """Conversations that it carries."""
        return self.conversations or min(EVENT_LOOP_CONVERSATIONS, capacity(self.costs))


# Whisper base hears 3 s of speech in 0.1 s and Piper says a first clause in 0.1 s, on one core each (measured). The
# language model's first clause comes after 16 to 18 ms on an H200 (simulated by lab.benchmarks.crowd_simulation), on an
# L4 after about five times as long, as its bandwidth is a sixteenth and its steps take ten times as long (estimates).
_GPU_NOTE = "estimate: speech measured on one core of an EPYC, language model simulated"

KINDS = {
    "l4": ReplicaKind(staged_costs(0.10, 0.09, 0.10, 0.40), 1.0, 0.80, 180.0, f"L4, 1.5B. {_GPU_NOTE}"),
    "h100": ReplicaKind(
        staged_costs(0.10, 0.02, 0.10, 0.40), 0.25, 0.90, 180.0, f"a quarter of an H100, 1.5B. {_GPU_NOTE}"
    ),
    "cpu": ReplicaKind(
        TurnCosts({1: 0.298, 2: 0.617, 4: 1.086}, 0.255, 0.10), 0.0, 0.10, 90.0, "two cores of an EPYC, 0.5B: measured"
    ),
}
"""By name, with the machine's price per hour, as assumed."""


def _height(hour: float) -> float:
    return sum(peak * math.exp(-(((hour - at) / width) ** 2)) for at, width, peak in _PEAKS)


_HIGHEST = max(_height(minute / 60) for minute in range(1440))


def daily_curve(second: float) -> float:
    """How many calls arrive at a time of the day, compared with the busiest moment."""
    return _NIGHT + (1 - _NIGHT) * _height(second / 3600) / _HIGHEST


Curve = Callable[[float], float]
"""The second of a day → how many calls arrive, compared with the busiest moment."""


def spare_conversations(calls: float, start_s: float, curve: Curve = daily_curve) -> float:
    """For how many new calls there must be room: what arrives on top while a replica starts, in the steepest part of
    the day, and three standard deviations of chance.

    Args:
        calls: at the same time, at the peak.
    """
    steepest = max(curve((second + start_s) % DAY_S) - curve(second) for second in range(0, DAY_S, 60))
    return calls * steepest + 3 * math.sqrt(calls * min(1.0, start_s / MEAN_CALL_S)) + 1


# Routing: each chooses a replica for every call of a group, from what is known of all replicas that take calls.

Router = Callable[[Counts, int, np.random.Generator, int], Counts]
"""(open calls of each replica, calls to place, chance, calls placed before) → the replica of each call."""


def power_of_two(occupied: Counts, calls: int, chance: np.random.Generator, placed: int) -> Counts:
    """The less occupied of two replicas that are chosen at random."""
    first, second = chance.integers(len(occupied), size=(2, calls))
    chosen: Counts = np.where(occupied[first] <= occupied[second], first, second)
    return chosen


def least_connections(occupied: Counts, calls: int, chance: np.random.Generator, placed: int) -> Counts:
    """The least occupied replica."""
    if calls >= len(occupied):
        return np.resize(np.argsort(occupied, kind="stable"), calls)
    return np.argpartition(occupied, calls - 1)[:calls]


def round_robin(occupied: Counts, calls: int, chance: np.random.Generator, placed: int) -> Counts:
    """One after the other."""
    return np.arange(placed, placed + calls) % len(occupied)


ROUTERS: dict[str, Router] = {
    "power of two": power_of_two,
    "least connections": least_connections,
    "round robin": round_robin,
}


@dataclass
class Outcome:
    """A simulated day.

    Attributes:
        calls: that arrived.
        refused_once: whom the first replica refused.
        refused: whom all replicas refused.
        peak_calls: the most at the same time.
        peak_replicas, replica_hours: of all replicas that run, those that start or drain included.
        occupancy: [capacity + 1] conversation-seconds by the number of conversations of their replica.
        cut_off: calls that a stopping replica ended, which must not happen.
    """

    calls: int = 0
    refused_once: int = 0
    refused: int = 0
    peak_calls: int = 0
    peak_replicas: int = 0
    replica_hours: float = 0.0
    occupancy: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    cut_off: int = 0


_ABSENT, _STARTING, _SERVING, _DRAINING = range(4)


class Fleet:
    """The replicas of a service during a day.

    Args:
        calls: at the same time at the peak, on average.
        fixed: whether all replicas that the peak needs always run.
    """

    def __init__(
        self,
        kind: ReplicaKind,
        calls: float,
        router: Router,
        seed: int,
        *,
        fixed: bool = False,
        curve: Curve = daily_curve,
    ) -> None:
        self._kind, self._router, self._chance, self._fixed = kind, router, np.random.default_rng(seed), fixed
        self._capacity, self._rate = kind.capacity, calls / MEAN_CALL_S
        self._curve, self._spare = curve, spare_conversations(calls, kind.start_s, curve)
        size = math.ceil(1.5 * replicas_for(calls, self._capacity, self._spare)) + 8
        self._state, self._ready_at = np.full(size, _ABSENT), np.zeros(size)
        self._open = np.zeros(size, np.int64)
        self._ends = np.zeros((int(LONGEST_CALL_S) + 2, size), np.int8)  # calls that end, by second and replica
        first = replicas_for(calls if fixed else calls * curve(0), self._capacity, self._spare)
        self._state[:first] = _SERVING
        self._scale_in = ScaleInDelay(SCALE_IN_S)
        self._placed = 0
        self.outcome = Outcome(occupancy=np.zeros(self._capacity + 1))

    def run(self, seconds: int = DAY_S) -> Outcome:
        """Simulate a day, or its beginning."""
        for now in range(seconds):
            self._end_calls(now)
            arriving = int(self._chance.poisson(self._rate * self._curve(now)))
            if arriving:
                self._place(now, arriving)
            if now % _SCALE_EVERY_S == 0:
                self._scale(now)
            if now % _SAMPLE_EVERY_S == 0:
                self._sample()
        return self.outcome

    def _end_calls(self, now: int) -> None:
        row = self._ends[now % len(self._ends)]
        self._open -= row
        row[:] = 0
        self._state[(self._state == _STARTING) & (self._ready_at <= now)] = _SERVING
        self._state[(self._state == _DRAINING) & (self._open == 0)] = _ABSENT

    def _place(self, now: int, arriving: int) -> None:
        out, serving = self.outcome, np.flatnonzero(self._state == _SERVING)
        out.calls += arriving
        group = max(1, len(serving) // 8)
        for start in range(0, arriving, group):
            calls = min(group, arriving - start)
            chosen = serving[self._router(self._open[serving], calls, self._chance, self._placed)]
            self._placed += calls
            refused = self._admit(now, chosen)
            out.refused_once += refused
            while refused:  # each asks further replicas until one has room
                room = serving[self._open[serving] < self._capacity]
                if not len(room):
                    out.refused += refused
                    break
                refused = self._admit(now, self._chance.choice(room, refused))

    def _admit(self, now: int, chosen: Counts) -> int:
        """Open calls on replicas. Returns how many were refused because theirs was full."""
        order = np.argsort(chosen, kind="stable")
        ranked = chosen[order]
        rank = np.arange(len(ranked)) - np.searchsorted(ranked, ranked)  # of a call among those of the same replica
        admitted = ranked[self._open[ranked] + rank < self._capacity]
        mean = math.log(MEAN_CALL_S) - CALL_SIGMA**2 / 2
        lengths = np.minimum(self._chance.lognormal(mean, CALL_SIGMA, len(admitted)), LONGEST_CALL_S)
        ends = (now + 1 + lengths.astype(np.int64)) % len(self._ends)
        np.add.at(self._ends, (ends, admitted), 1)
        np.add.at(self._open, admitted, 1)
        return len(chosen) - len(admitted)

    def _scale(self, now: int) -> None:
        if self._fixed:
            return
        serving, starting = (np.flatnonzero(self._state == state) for state in (_SERVING, _STARTING))
        wanted = replicas_for(int(self._open[serving].sum()), self._capacity, self._spare)
        wanted = self._scale_in.replicas(wanted, now)
        running = len(serving) + len(starting)
        if wanted > running:
            new = np.flatnonzero(self._state == _ABSENT)[: wanted - running]
            self._state[new], self._ready_at[new] = _STARTING, now + self._kind.start_s
        else:
            leaving = np.concatenate((serving, starting))[wanted:]  # the newest
            self._state[leaving] = _DRAINING

    def _sample(self) -> None:
        out, running = self.outcome, self._state != _ABSENT
        out.cut_off += int(self._open[~running].sum())
        counts = np.bincount(self._open[running], minlength=self._capacity + 1)
        out.occupancy += counts * np.arange(len(counts)) * float(_SAMPLE_EVERY_S)
        out.peak_calls = max(out.peak_calls, int(self._open.sum()))
        out.peak_replicas = max(out.peak_replicas, int(running.sum()))
        out.replica_hours += int(running.sum()) * _SAMPLE_EVERY_S / 3600


class Latencies:
    """Turn latencies by the number of conversations of a replica."""

    def __init__(self, kind: ReplicaKind) -> None:
        self._of = [np.sort(simulated_latencies(kind.costs, count)) for count in range(1, kind.capacity + 1)]

    def percentile(self, occupancy: npt.NDArray[np.float64], share: float) -> float:
        """Of all turns, in s. Conversations take turns equally often.

        Args:
            occupancy: [capacity + 1] conversation-seconds by the number of conversations of their replica.
        """
        values = np.concatenate(self._of)
        weights = np.concatenate(
            [np.full(len(one), weight / len(one)) for one, weight in zip(self._of, occupancy[1:], strict=True)]
        )
        order = np.argsort(values)
        reached = np.searchsorted(np.cumsum(weights[order]), share * weights.sum())
        return float(values[order][min(reached, len(values) - 1)])


def rows(kind: ReplicaKind, sizes: Iterable[int], routers: Sequence[str], seed: int) -> Iterable[str]:
    """A row of the table for each size and router, and one for a fleet that does not scale."""
    latencies = Latencies(kind)
    for calls in sizes:
        for name in (*routers, "does not scale"):
            router = ROUTERS.get(name, power_of_two)
            out = Fleet(kind, calls, router, seed, fixed=name not in ROUTERS).run()
            assert not out.cut_off, "a draining replica was stopped with calls on it"
            call_minutes = out.occupancy.sum() / 60
            dollars = out.replica_hours * kind.dollars_per_hour
            p50, p95 = (1e3 * latencies.percentile(out.occupancy, share) for share in (0.5, 0.95))
            cells = (
                f"{calls:,}", name, f"{out.peak_calls:,}", f"{out.peak_replicas:,}",
                f"{math.ceil(out.peak_replicas * kind.gpus):,}", f"{out.replica_hours / 24:,.1f}", f"{dollars:,.0f}",
                f"{100 * dollars / call_minutes:.2f}", f"{p50:.0f}", f"{p95:.0f}",
                f"{out.refused_once / out.calls:.3%}", f"{out.refused / out.calls:.3%}",
            )  # fmt: skip
            yield f"| {' | '.join(cells)} |"


HEADER = (
    "calls at the peak", "routing", "most calls", "most replicas", "GPUs", "replicas on average", "$ a day",
    "¢ a call minute", "turn latency p50, ms", "p95, ms", "refused by the first replica", "refused",
)  # fmt: skip


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(prog="python -m lab.simulator.fleet", description="Plan a fleet of replicas.")
    parser.add_argument("--calls", type=int, nargs="+", default=[100, 1000, 10_000, 100_000])
    parser.add_argument("--replica", choices=KINDS, default="l4")
    parser.add_argument("--routing", choices=ROUTERS, nargs="+", default=list(ROUTERS))
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    kind = KINDS[arguments.replica]
    began = time.perf_counter()
    print(f"Simulated. A replica: {kind.source}; {kind.capacity} conversations, ${kind.dollars_per_hour:.2f} an hour")
    print(f"(assumed), {kind.start_s:.0f} s to start.\n")
    print(f"| {' | '.join(HEADER)} |\n|{'---|' * len(HEADER)}")
    for row in rows(kind, arguments.calls, arguments.routing, arguments.seed):
        print(row, flush=True)
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
