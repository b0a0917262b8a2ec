"""Limits for the metrics of a report, such as `p95=1000`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from lab.report.figures import Distribution, ReportMetrics


def _latency(name: str) -> Callable[[ReportMetrics], float | None]:
    return lambda metrics: _percentile(metrics.latency, name)


def _percentile(values: Distribution | None, name: str) -> float | None:
    return None if values is None else float(getattr(values, name))


_METRICS: dict[str, tuple[str, str, Callable[[ReportMetrics], float | None]]] = {
    **{name: (f"turn latency {name}", " ms", _latency(name)) for name in ("p50", "p90", "p95", "p99", "max")},
    "false_cutoffs": (
        "false cut-offs",
        " %",
        lambda metrics: None if metrics.from_turn_log else 100 * metrics.cutoff_share,
    ),
    "barge_in_stop_p95": ("barge-in stop p95", " ms", lambda metrics: _percentile(metrics.barge_in_stop, "p95")),
    "missed": ("missed turns", "", lambda metrics: None if metrics.from_turn_log else metrics.missed),
    "underruns": ("underruns", "", lambda metrics: None if metrics.from_turn_log else metrics.underruns),
}


@dataclass(frozen=True)
class Limit:
    """The maximum of a metric."""

    name: str
    maximum: float


def parse_limit(argument: str) -> Limit:
    """Parse `NAME=NUMBER`.

    Raises:
        ValueError: the argument has another form, the metric is unknown, or the limit is not a number.
    """
    name, _, number = argument.partition("=")
    if name not in _METRICS or not number:
        raise ValueError(f"--limit {argument}: a limit looks like p95=1000; the metrics are {', '.join(_METRICS)}")
    try:
        maximum = float(number)
        if math.isfinite(maximum):
            return Limit(name, maximum)
    except ValueError:
        pass
    raise ValueError(f"--limit {argument}: {number!r} is not a number")


def _written(value: float) -> str:
    return f"{value:,.2f}".rstrip("0").rstrip(".")


def exceeded_limits(limits: list[Limit], metrics: ReportMetrics) -> list[str]:
    """A message for each limit that is not met. A metric without measurements does not meet its limit, except barge-in:
    a report without interruptions meets it."""
    messages = []
    for limit in limits:
        title, unit, read = _METRICS[limit.name]
        value = read(metrics)
        if value is not None and value > limit.maximum:
            messages.append(f"{title} is {_written(value)}{unit}, above the limit of {limit.maximum:g}{unit}")
        elif value is None and limit.name != "barge_in_stop_p95":
            messages.append(f"{title} was not measured and does not meet its limit of {limit.maximum:g}{unit}")
    return messages
