"""Computes the metrics of a report from the measurements of its turns. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

import numpy as np

from lab.report.measure import Measurement
from voice.turn_metrics import END_OF_TURN, STAGES

Group = TypeVar("Group", str, int)

_RESAMPLES = 2000
"""Bootstrap resamples. With another seed the ends of the interval move by 1 to 2 %."""

_RESAMPLED_AT_ONCE = 1 << 22
"""Values in memory: a turn log may have a hundred thousand turns."""


_STAGE_TITLES = {"soft_end": "speculation start"}
"""Titles of stages whose key is not their title."""


@dataclass(frozen=True)
class Distribution:
    """Percentiles in ms; `p95_interval` is a bootstrap 95 % interval of the p95."""

    n: int
    p50: float
    p90: float
    p95: float
    p99: float
    max: float
    p95_interval: tuple[float, float]


@dataclass(frozen=True)
class ReportMetrics:
    """The metrics of a set of turns.

    Attributes:
        turns: number of turns.
        answered: turns with an audible response after the end of the user's speech.
        latency: of the answered turns; None if there are none.
        false_cutoffs: turns whose response started before the user's last sample.
        from_turn_log: the turns come from a turn log: what only a client can observe is unknown, and 0 here.
        backchannels_survived: responses that continued after a backchannel, including those that paused.
        backchannels_resumed: those of them that paused.
        backchannels_broken: responses that a backchannel ended.
        broken_off: responses that stopped although nobody spoke over them.
        barge_in_stop, barge_in_sent: time until the response was inaudible, and until the last audio was received.
        stages_ms: p50 and p95 of each latency stage of the server.
        speculations: speculative responses started; None if the server does not report them.
        speculations_used: turns answered with a speculative response; None likewise.
        steps: forward passes of the language model that generated the responses; None likewise.
        drafts_spoken, drafts_dropped: first clauses synthesized from a draft that were used, and discarded; None
            likewise.
        drafts_shown, drafts_kept: draft tokens that were reported, and those of them that became final; None likewise.
        drafted_by: what drafted them.
    """

    turns: int
    answered: int
    missed: int
    unasked: int
    false_cutoffs: int
    early_commits: int
    latency: Distribution | None
    barge_in_stop: Distribution | None
    barge_in_sent: Distribution | None
    backchannels_survived: int
    backchannels_resumed: int
    backchannels_broken: int
    broken_off: int
    underruns: int
    underrun_ms: float
    stages_ms: dict[str, dict[str, float]] = field(default_factory=dict)
    speculations: int | None = None
    speculations_used: int | None = None
    drafts_spoken: int | None = None
    drafts_dropped: int | None = None
    steps: int | None = None
    drafts_shown: int | None = None
    drafts_kept: int | None = None
    drafted_by: tuple[str, ...] = ()
    from_turn_log: bool = False

    @property
    def cutoff_share(self) -> float:
        """Share of false cut-offs among all turns, 0 to 1."""
        return self.false_cutoffs / self.turns if self.turns else 0.0

    @property
    def speculations_discarded(self) -> int | None:
        """Speculative responses that nobody heard."""
        return None if self.speculations is None else self.speculations - (self.speculations_used or 0)


def compute_metrics(measurements: Sequence[Measurement], seed: int = 0) -> ReportMetrics:
    """The metrics of these turns.

    Args:
        seed: of the bootstrap.
    """
    latencies = [turn.latency_ms for turn in measurements if turn.latency_ms is not None]
    stops = [turn.barge_in_stop_ms for turn in measurements if turn.barge_in_stop_ms is not None]
    sent = [turn.barge_in_sent_ms for turn in measurements if turn.barge_in_sent_ms is not None]
    reported = [turn for turn in measurements if turn.speculations is not None]
    return ReportMetrics(
        turns=len(measurements),
        answered=len(latencies),
        missed=sum(turn.missed for turn in measurements),
        unasked=sum(turn.unasked for turn in measurements),
        false_cutoffs=sum(turn.cut_off for turn in measurements),
        early_commits=sum(turn.early_commit for turn in measurements),
        latency=distribution(latencies, seed),
        barge_in_stop=distribution(stops, seed),
        barge_in_sent=distribution(sent, seed),
        backchannels_survived=sum(turn.backchannel in ("survived", "resumed") for turn in measurements),
        backchannels_resumed=sum(turn.backchannel == "resumed" for turn in measurements),
        backchannels_broken=sum(turn.backchannel == "broken" for turn in measurements),
        broken_off=sum(turn.broken_off for turn in measurements),
        underruns=sum(turn.underruns for turn in measurements),
        underrun_ms=round(sum(turn.underrun_ms for turn in measurements), 1),
        stages_ms=_stage_percentiles(measurements),
        speculations=sum(turn.speculations or 0 for turn in reported) if reported else None,
        speculations_used=sum(turn.speculation_used is True for turn in reported) if reported else None,
        drafts_spoken=sum(turn.drafts_spoken or 0 for turn in reported) if reported else None,
        drafts_dropped=sum(turn.drafts_dropped or 0 for turn in reported) if reported else None,
        steps=sum(turn.steps or 0 for turn in reported) if reported else None,
        drafts_shown=sum(turn.drafts_shown or 0 for turn in reported) if reported else None,
        drafts_kept=sum(turn.drafts_kept or 0 for turn in reported) if reported else None,
        drafted_by=tuple(dict.fromkeys(name for turn in reported for name in turn.drafted_by)),
        from_turn_log=any(turn.from_turn_log for turn in measurements),
    )


def metrics_by_kind(measurements: Sequence[Measurement], seed: int = 0) -> dict[str, ReportMetrics]:
    """The metrics of each kind of turn, in order of first appearance."""
    return _metrics_by(measurements, lambda turn: turn.kind, seed)


def metrics_by_voice(measurements: Sequence[Measurement], seed: int = 0) -> dict[str, ReportMetrics]:
    """The metrics of the turns of each synthesized voice, in order of their names."""
    spoken = sorted((turn for turn in measurements if turn.voice), key=lambda turn: turn.voice)
    return _metrics_by(spoken, lambda turn: turn.voice, seed)


def metrics_by_corpus(measurements: Sequence[Measurement], seed: int = 0) -> dict[str, ReportMetrics]:
    """The metrics of the turns of each corpus, in order of first appearance."""
    return _metrics_by(measurements, lambda turn: turn.corpus, seed)


def metrics_by_sessions(measurements: Sequence[Measurement], seed: int = 0) -> dict[int, ReportMetrics]:
    """The metrics of each number of conversations that took place at the same time, in ascending order."""
    return _metrics_by(sorted(measurements, key=lambda turn: turn.sessions), lambda turn: turn.sessions, seed)


def p95_slowdowns(by_sessions: Mapping[int, ReportMetrics]) -> dict[int, float | None]:
    """p95 of the turn latency for each number of conversations, divided by that of the fewest."""
    p95s = {number: metrics.latency and metrics.latency.p95 for number, metrics in by_sessions.items()}
    fewest = next(iter(p95s.values()), None)
    return {number: round(p95 / fewest, 3) if p95 and fewest else None for number, p95 in p95s.items()}


def _metrics_by(
    measurements: Sequence[Measurement], group: Callable[[Measurement], Group], seed: int
) -> dict[Group, ReportMetrics]:
    groups: dict[Group, list[Measurement]] = {}
    for turn in measurements:
        groups.setdefault(group(turn), []).append(turn)
    return {name: compute_metrics(turns, seed) for name, turns in groups.items()}


def distribution(values: Sequence[float], seed: int = 0) -> Distribution | None:
    """Percentiles; None without values. The interval is a percentile bootstrap (Efron and Tibshirani 1993, ch. 13):
    values are resampled with replacement, and the interval contains the middle 95 % of the resulting p95s."""
    if not values:
        return None
    rng = np.random.default_rng(seed)
    array, at_once = np.asarray(values, np.float64), max(1, _RESAMPLED_AT_ONCE // len(values))
    p95s = [
        np.quantile(rng.choice(array, (min(at_once, _RESAMPLES - done), len(array))), 0.95, axis=1)
        for done in range(0, _RESAMPLES, at_once)
    ]
    low, high = np.quantile(np.concatenate(p95s), (0.025, 0.975))
    p50, p90, p95, p99 = (round(float(np.quantile(values, share)), 1) for share in (0.5, 0.9, 0.95, 0.99))
    return Distribution(
        len(values), p50, p90, p95, p99, round(max(values), 1), (round(float(low), 1), round(float(high), 1))
    )


def _stage_percentiles(measurements: Sequence[Measurement]) -> dict[str, dict[str, float]]:
    """In the order of a turn; stages that this version does not know come last."""
    names = dict.fromkeys([END_OF_TURN[0], *(name for name, _, _ in STAGES)])
    names |= dict.fromkeys(name for turn in measurements for name in turn.stages_ms)
    percentiles = {}
    for name in names:
        values = [turn.stages_ms[name] for turn in measurements if name in turn.stages_ms]
        if values:
            percentiles[name] = {
                title: round(float(np.quantile(values, share)), 1) for title, share in (("p50", 0.5), ("p95", 0.95))
            }
    return percentiles


def stage_title(name: str) -> str:
    """A stage's title for people."""
    return _STAGE_TITLES.get(name, name.replace("_", " "))


def metrics_json(metrics: ReportMetrics) -> dict[str, Any]:
    """As `rejoinder report --json` writes it."""
    client_side = {
        "missed": metrics.missed,
        "unasked": metrics.unasked,
        "false_cutoffs": {"count": metrics.false_cutoffs, "share": round(metrics.cutoff_share, 4)},
        "early_commits": metrics.early_commits,
        "barge_in_stop_ms": None if metrics.barge_in_stop is None else asdict(metrics.barge_in_stop),
        "barge_in_sent_ms": None if metrics.barge_in_sent is None else asdict(metrics.barge_in_sent),
        "backchannels": {
            "survived": metrics.backchannels_survived,
            "resumed": metrics.backchannels_resumed,
            "broken": metrics.backchannels_broken,
        },
        "broken_off": metrics.broken_off,
        "underruns": {"count": metrics.underruns, "total_ms": metrics.underrun_ms},
    }
    return {
        "turns": metrics.turns,
        "answered": metrics.answered,
        "turn_latency_ms": None if metrics.latency is None else asdict(metrics.latency),
        **(dict.fromkeys(client_side) if metrics.from_turn_log else client_side),
        "stages_ms": metrics.stages_ms,
        "speculation": {
            "guesses": metrics.speculations,
            "kept": metrics.speculations_used,
            "wasted": metrics.speculations_discarded,
        },
        "steps": metrics.steps,
        "drafts": {
            "spoken": metrics.drafts_spoken,
            "dropped": metrics.drafts_dropped,
            "shown": metrics.drafts_shown,
            "kept": metrics.drafts_kept,
            "by": metrics.drafted_by,
        },
    }
