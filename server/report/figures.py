"""From measured turns to the figures of a report. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from server.report.measure import Measurement
from voice.timeline import END_OF_TURN, STAGES, percentile

_RESAMPLES = 2000
"""Of the bootstrap: the interval's ends move by a per cent or two with another seed."""


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
class Figures:
    """What a report says of some turns.

    Attributes:
        turns: spoken.
        answered: with an audible answer, after the user's end.
        latency: of the answered ones; None without any.
        false_cutoffs: turns in which sound came before the user's last sample.
        live: of real conversations: what only a client hears is not known, and 0 here.
        survived: answers that went on behind a backchannel; resumed: those of them that were silent meanwhile.
        broken_off: answers stopped although nobody spoke over them.
        barge_in_stop, barge_in_sent: until the answer was no longer heard, and until no more of it came.
        stages_ms: p50 and p95 of each of the server's stages.
        guesses, guesses_kept: revisions begun on a guess, and turns answered from one; None when nobody told.
        drafts_spoken, drafts_dropped: first clauses synthesized from a draft, used and thrown away; None likewise.
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
    survived: int
    resumed: int
    broken: int
    broken_off: int
    underruns: int
    underrun_ms: float
    stages_ms: dict[str, dict[str, float]] = field(default_factory=dict)
    guesses: int | None = None
    guesses_kept: int | None = None
    drafts_spoken: int | None = None
    drafts_dropped: int | None = None
    live: bool = False

    @property
    def cutoff_share(self) -> float:
        """False cut-offs among all turns, 0 to 1."""
        return self.false_cutoffs / self.turns if self.turns else 0.0

    @property
    def guesses_wasted(self) -> int | None:
        """Revisions that nobody heard."""
        return None if self.guesses is None else self.guesses - (self.guesses_kept or 0)


def figures(measured: Sequence[Measurement], seed: int = 0) -> Figures:
    """The figures of these turns.

    Args:
        seed: of the bootstrap.
    """
    latencies = [turn.latency_ms for turn in measured if turn.latency_ms is not None]
    stops = [turn.barge_in_stop_ms for turn in measured if turn.barge_in_stop_ms is not None]
    sent = [turn.barge_in_sent_ms for turn in measured if turn.barge_in_sent_ms is not None]
    guessed = [turn for turn in measured if turn.guesses is not None]
    return Figures(
        turns=len(measured),
        answered=len(latencies),
        missed=sum(turn.missed for turn in measured),
        unasked=sum(turn.unasked for turn in measured),
        false_cutoffs=sum(turn.cut_off for turn in measured),
        early_commits=sum(turn.early_commit for turn in measured),
        latency=distribution(latencies, seed),
        barge_in_stop=distribution(stops, seed),
        barge_in_sent=distribution(sent, seed),
        survived=sum(turn.backchannel in ("survived", "resumed") for turn in measured),
        resumed=sum(turn.backchannel == "resumed" for turn in measured),
        broken=sum(turn.backchannel == "broken" for turn in measured),
        broken_off=sum(turn.broken_off for turn in measured),
        underruns=sum(turn.underruns for turn in measured),
        underrun_ms=round(sum(turn.underrun_ms for turn in measured), 1),
        stages_ms=_stages(measured),
        guesses=sum(turn.guesses or 0 for turn in guessed) if guessed else None,
        guesses_kept=sum(turn.guess_kept is True for turn in guessed) if guessed else None,
        drafts_spoken=sum(turn.drafts_spoken or 0 for turn in guessed) if guessed else None,
        drafts_dropped=sum(turn.drafts_dropped or 0 for turn in guessed) if guessed else None,
        live=any(turn.live for turn in measured),
    )


def by_kind(measured: Sequence[Measurement], seed: int = 0) -> dict[str, Figures]:
    """The figures of each kind of turn, in the order in which the kinds came."""
    kinds = dict.fromkeys(turn.kind for turn in measured)
    return {kind: figures([turn for turn in measured if turn.kind == kind], seed) for kind in kinds}


def distribution(values: Sequence[float], seed: int = 0) -> Distribution | None:
    """Percentiles, None without values. The interval is the percentile bootstrap (Efron and Tibshirani 1993, ch. 13):
    values are drawn again with replacement, and the middle 95 % of the p95s so found are it."""
    if not values:
        return None
    rng = np.random.default_rng(seed)
    drawn = rng.choice(np.asarray(values, np.float64), (_RESAMPLES, len(values)))
    low, high = np.quantile(np.quantile(drawn, 0.95, axis=1), (0.025, 0.975))
    shares = (percentile(values, share) for share in (0.5, 0.9, 0.95, 0.99))
    p50, p90, p95, p99 = (round(value, 1) for value in shares)
    return Distribution(
        len(values), p50, p90, p95, p99, round(max(values), 1), (round(float(low), 1), round(float(high), 1))
    )


def _stages(measured: Sequence[Measurement]) -> dict[str, dict[str, float]]:
    """In the order of a turn; stages that this version does not know come last."""
    names = dict.fromkeys([END_OF_TURN[0], *(name for name, _, _ in STAGES)])
    names |= dict.fromkeys(name for turn in measured for name in turn.stages_ms)
    found = {}
    for name in names:
        values = [turn.stages_ms[name] for turn in measured if name in turn.stages_ms]
        if values:
            found[name] = {share: round(percentile(values, at), 1) for share, at in (("p50", 0.5), ("p95", 0.95))}
    return found


def as_json(found: Figures) -> dict[str, Any]:
    """As `rejoinder report --json` writes it."""
    heard = {
        "missed": found.missed,
        "unasked": found.unasked,
        "false_cutoffs": {"count": found.false_cutoffs, "share": round(found.cutoff_share, 4)},
        "early_commits": found.early_commits,
        "barge_in_stop_ms": None if found.barge_in_stop is None else asdict(found.barge_in_stop),
        "barge_in_sent_ms": None if found.barge_in_sent is None else asdict(found.barge_in_sent),
        "backchannels": {"survived": found.survived, "resumed": found.resumed, "broken": found.broken},
        "broken_off": found.broken_off,
        "underruns": {"count": found.underruns, "total_ms": found.underrun_ms},
    }
    return {
        "turns": found.turns,
        "answered": found.answered,
        "turn_latency_ms": None if found.latency is None else asdict(found.latency),
        **(dict.fromkeys(heard) if found.live else heard),
        "stages_ms": found.stages_ms,
        "speculation": {"guesses": found.guesses, "kept": found.guesses_kept, "wasted": found.guesses_wasted},
        "drafts": {"spoken": found.drafts_spoken, "dropped": found.drafts_dropped},
    }
