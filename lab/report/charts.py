"""What the report's charts show, and where. `report.html.jinja` draws them as inline SVG."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lab.report.figures import Distribution, ReportMetrics, stage_title
from lab.report.measure import Measurement
from voice.turn_metrics import END_OF_TURN, STAGES

_STAGE_NAMES = [name for name, _, _ in STAGES]

_BINS = 24

Bins = list[tuple[float, float, float]]
"""Start and end in ms, and number of turns, of each bin of a histogram."""

_MIN_LABEL_DISTANCE = 60
"""Runs whose marks are closer than this have their labels stacked."""


@dataclass(frozen=True)
class Scale:
    """The axis of the waterfalls, in ms."""

    low: float
    high: float

    def percent(self, moment: float) -> str:
        """Where a moment is."""
        return f"{100 * (moment - self.low) / (self.high - self.low):.3f}%"

    def width(self, bar: Bar) -> str:
        """How long a bar is drawn."""
        return f"{max(100 * (bar.end - bar.start) / (self.high - self.low), 0.15):.3f}%"

    @property
    def ticks(self) -> list[float]:
        """Where the axis is marked."""
        step = _step(self.high - self.low)
        return [step * n for n in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


@dataclass(frozen=True)
class Bar:
    """A part of a waterfall, in ms; a mark, if it ends where it starts."""

    start: float
    end: float
    css_class: str
    title: str


@dataclass(frozen=True)
class Plane:
    """The plane of a chart, whose vertical axis begins at 0. Positions are in pixels of the view box."""

    x_axis: Scale
    highest: float

    width, height = 560, 250
    left, right, top, bottom = 48, 544, 44, 210

    def x(self, value: float) -> float:
        """Where a value is on the horizontal axis."""
        return self.left + (self.right - self.left) * (value - self.x_axis.low) / (self.x_axis.high - self.x_axis.low)

    def y(self, value: float) -> float:
        """Where a value is on the vertical axis."""
        return self.bottom - (self.bottom - self.top) * value / self.highest

    @property
    def y_ticks(self) -> list[float]:
        """Where the vertical axis is marked."""
        step = max(1.0, _step(self.highest, 5))
        return [step * n for n in range(int(self.highest / step) + 1)]


@dataclass(frozen=True)
class CurvePoint:
    """A run in the curve of latency against false cut-offs, and where its label is."""

    label: str
    css_class: str
    cutoffs_percent: float
    latency: Distribution
    label_y: float


def stage_class(name: str) -> str:
    """The CSS class of a stage; stages of other servers share one."""
    return f"s{_STAGE_NAMES.index(name) + 1}" if name in _STAGE_NAMES else "other"


def scale(measurements: Sequence[Measurement]) -> Scale:
    """An axis that contains 0 and the bars of every turn."""
    low, high = 0.0, 100.0
    for turn in measurements:
        start, end = span(turn)
        low, high = min(low, start), max(high, end)
    step = _step(high - low)
    low = low if low < -0.02 * step else 0.0  # rounding, not a detection before the end of speech
    return Scale(math.floor(low / step) * step, math.ceil(high / step) * step)


def waterfall(turn: Measurement) -> list[Bar]:
    """The bars of one turn, with the user's last sample at 0: the server's stages up to the arrival of the first audio,
    then the time until it was audible. A mark shows when the endpointer was certain of the end of the turn."""
    start, _ = span(turn)
    moment, bars = start, []
    for name, length in _stages(turn).items():
        title = f"{stage_title(name)}: {length:,.0f} ms, from {moment:,.0f} ms"
        bars.append(Bar(moment, moment + length, stage_class(name), title))
        moment += length
    decided = turn.stages_ms.get(END_OF_TURN[0])
    if decided is not None:
        title = f"end of turn certain: {decided:,.0f} ms after the last detected speech"
        bars.append(Bar(start + decided, start + decided, "decided", title))
    moment = max(moment, 0.0)
    if turn.latency_ms is not None and turn.latency_ms - moment > 0.5:
        phase = "until audible" if turn.stages_ms else "until the first audible sample"
        bars.append(Bar(moment, turn.latency_ms, "rest", f"{phase}: {turn.latency_ms - moment:,.0f} ms"))
    return bars


def histogram(latencies: Sequence[float], before: Sequence[float] = ()) -> tuple[Plane, Bins, Bins] | None:
    """The distribution of latencies, and that of `before`, scaled to the same number of turns. None if no turn was
    answered."""
    if not latencies:
        return None
    all_values = [*latencies, *before]
    step = _step(max(all_values) - min(0.0, *all_values), _BINS)
    low = math.floor(min(0.0, *all_values) / step) * step
    count = int((max(all_values) - low) // step) + 1

    def bins(values: Sequence[float]) -> Bins:
        turns = Counter(int((value - low) // step) for value in values)
        return [(low + n * step, low + (n + 1) * step, turns[n] * len(latencies) / len(values)) for n in range(count)]

    drawn, outline = bins(latencies), bins(before) if before else []
    plane = Plane(Scale(low, low + count * step), max(1.0, *(turns for _, _, turns in (*drawn, *outline))))
    return plane, drawn, outline


def curve(runs: Sequence[tuple[str, ReportMetrics]]) -> tuple[Plane, list[CurvePoint]] | None:
    """Latency against false cut-offs. None if no turn was answered."""
    answered = [
        (label, "that" if number else "this", metrics.cutoff_share * 100, metrics.latency)
        for number, (label, metrics) in enumerate(runs)
        if metrics.latency is not None
    ]
    if not answered:
        return None
    most = max(10.0, *(share for _, _, share, _ in answered)) * 1.08
    plane = Plane(Scale(0.0, most), 1.1 * max(100.0, *(latency.p95 for _, _, _, latency in answered)))
    points: list[CurvePoint] = []
    for label, css_class, share, latency in answered:
        stacked = sum(abs(plane.x(p.cutoffs_percent) - plane.x(share)) < _MIN_LABEL_DISTANCE for p in points)
        label_y = min(plane.y(latency.p50) + 4 + 15 * stacked, plane.bottom - 3)
        points.append(CurvePoint(label, css_class, share, latency, label_y))
    return plane, points


def span(turn: Measurement) -> tuple[float, float]:
    """Start and end of a turn's bars. The server's stages end where the first audio arrived on the client's clock."""
    length = sum(_stages(turn).values())
    arrived = turn.first_audio_ms if turn.first_audio_ms is not None else turn.latency_ms
    start = (arrived if arrived is not None else length) - length if turn.stages_ms else 0.0
    return start, max(start + length, turn.latency_ms or 0.0)


def _stages(turn: Measurement) -> dict[str, float]:
    """The consecutive stages."""
    return {name: length for name, length in turn.stages_ms.items() if name != END_OF_TURN[0]}


def _step(length: float, max_ticks: int = 8) -> float:
    """A round distance between ticks, so that at most `max_ticks` fit."""
    for power in range(9):
        for first in (1, 2, 5):
            if length / (first * 10**power) <= max_ticks:
                return float(first * 10**power)
    return length
