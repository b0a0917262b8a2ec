"""Limits that a report may be held to: `p95=1000` and the like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from server.report.figures import Distribution, Figures


def _latency(name: str) -> Callable[[Figures], float | None]:
    return lambda found: _of(found.latency, name)


def _of(values: Distribution | None, name: str) -> float | None:
    return None if values is None else float(getattr(values, name))


_KNOWN: dict[str, tuple[str, str, Callable[[Figures], float | None]]] = {
    **{name: (f"turn latency {name}", " ms", _latency(name)) for name in ("p50", "p90", "p95", "p99", "max")},
    "false_cutoffs": ("false cut-offs", " %", lambda found: None if found.live else 100 * found.cutoff_share),
    "barge_in_stop_p95": ("barge-in stop p95", " ms", lambda found: _of(found.barge_in_stop, "p95")),
    "missed": ("missed turns", "", lambda found: None if found.live else found.missed),
    "underruns": ("underruns", "", lambda found: None if found.live else found.underruns),
}


@dataclass(frozen=True)
class Limit:
    """A figure may be at most so much."""

    name: str
    most: float


def parse(said: str) -> Limit:
    """From `NAME=NUMBER`.

    Raises:
        ValueError: another form, an unknown figure, or no number.
    """
    name, _, number = said.partition("=")
    if name not in _KNOWN or not number:
        raise ValueError(f"--limit {said}: a limit looks like p95=1000; the figures are {', '.join(_KNOWN)}")
    try:
        return Limit(name, float(number))
    except ValueError:
        raise ValueError(f"--limit {said}: {number!r} is no number") from None


def broken(limits: list[Limit], found: Figures) -> list[str]:
    """A sentence for each limit that does not hold. A latency that was never measured keeps no limit; barge-in where
    nobody interrupted does."""
    sentences = []
    for limit in limits:
        title, unit, read = _KNOWN[limit.name]
        value = read(found)
        if value is not None and value > limit.most:
            sentences.append(f"{title} is {value:.4g}{unit}, above the limit of {limit.most:g}{unit}")
        elif value is None and limit.name != "barge_in_stop_p95":
            sentences.append(f"{title} was not measured, and so is not within its limit of {limit.most:g}{unit}")
    return sentences
