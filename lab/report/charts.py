"""The report's charts as inline SVG, which takes its colours from the page. All text is escaped."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape

from lab.report.figures import ReportMetrics, stage_title
from lab.report.measure import Measurement
from voice.turn_metrics import END_OF_TURN, STAGES

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")

_STAGE_NAMES = [name for name, _, _ in STAGES]

_WIDTH, _HEIGHT = 560, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 16, 44, 40

_BINS = 24

_MIN_LABEL_DISTANCE = 60
"""Runs whose marks are closer than this have their labels stacked."""


def escape_text(value: object) -> str:
    """Escape for element contents and quoted attributes, without the control characters that XML forbids."""
    return escape(_CONTROL_CHARACTERS.sub("", str(value)))


def stage_class(name: str) -> str:
    """The CSS class of a stage; stages of other servers share one."""
    return f"s{_STAGE_NAMES.index(name) + 1}" if name in _STAGE_NAMES else "other"


def scale(measurements: Sequence[Measurement]) -> tuple[float, float]:
    """Start and end in ms of an axis that contains 0 and the bars of every turn."""
    low, high = 0.0, 100.0
    for turn in measurements:
        start, end = _span(turn)
        low, high = min(low, start), max(high, end)
    step = _step(high - low)
    low = low if low < -0.02 * step else 0.0  # rounding, not a detection before the end of speech
    return math.floor(low / step) * step, math.ceil(high / step) * step


def axis(low: float, high: float) -> str:
    """The axis above the waterfalls."""
    marks = "".join(
        f'<text x="{_percent(moment, low, high)}" y="12" class="{"edge" if moment == low else "mark"}">'
        f"{moment:,.0f}</text>"
        for moment in _ticks(low, high)[:-1]
    )
    return f'<svg class="track axis" width="100%" height="16" role="presentation">{marks}</svg>'


def waterfall(turn: Measurement, low: float, high: float) -> str:
    """The bars of one turn, with the user's last sample at 0: the server's stages up to the arrival of the first audio,
    then the time until it was audible. A mark shows when the endpointer was certain of the end of the turn."""
    bars = [
        f'<line x1="{_percent(moment, low, high)}" x2="{_percent(moment, low, high)}" y1="0" y2="16" '
        f'class="{"zero" if moment == 0 else "grid"}"/>'
        for moment in _ticks(low, high)
    ]
    start, end = _span(turn)
    moment = start
    for name, length in _stages(turn).items():
        title = f"{stage_title(name)}: {length:,.0f} ms, from {moment:,.0f} ms"
        bars.append(_bar(moment, moment + length, low, high, stage_class(name), title))
        moment += length
    decided = turn.stages_ms.get(END_OF_TURN[0])
    if decided is not None:
        position = _percent(start + decided, low, high)
        title = f"end of turn certain: {decided:,.0f} ms after the last detected speech"
        bars.append(
            f'<g class="decided"><title>{escape_text(title)}</title>'
            f'<line x1="{position}" x2="{position}" y1="0" y2="16"/></g>'
        )
    if turn.latency_ms is not None and turn.latency_ms - max(moment, 0.0) > 0.5:
        phase = "until audible" if turn.stages_ms else "until the first audible sample"
        title = f"{phase}: {turn.latency_ms - max(moment, 0.0):,.0f} ms"
        bars.append(_bar(max(moment, 0.0), turn.latency_ms, low, high, "rest", title))
    label = escape_text(f"{turn.name}: {end:,.0f} ms" if turn.latency_ms is not None else f"{turn.name}: no latency")
    return f'<svg class="track" width="100%" height="16" role="img" aria-label="{label}">{"".join(bars)}</svg>'


def histogram(metrics: ReportMetrics, latencies: Sequence[float], before: Sequence[float] = ()) -> str:
    """The distribution of latencies, with marks at p50 and p95; `before` is drawn as an outline, scaled to the same
    number of turns."""
    if metrics.latency is None:
        return '<p class="soft">No turn was answered.</p>'
    all_values = [*latencies, *before]
    step = _step(max(all_values) - min(0.0, *all_values), _BINS)
    low = math.floor(min(0.0, *all_values) / step) * step
    count = int((max(all_values) - low) // step) + 1
    high = low + count * step
    bins, outline = _counts(latencies, low, step, count), _counts(before, low, step, count)
    outline = [n * len(latencies) / len(before) for n in outline] if before else outline
    highest = max(1.0, *bins, *outline)
    drawn = [_frame(low, high, "ms from the user's last sample to the first audible sample", highest, "turns")]
    for n, turns in enumerate(bins):
        if turns:
            x, right = _x(low + n * step, low, high), _x(low + (n + 1) * step, low, high)
            y = _y(turns, highest)
            title = f"{low + n * step:,.0f} to {low + (n + 1) * step:,.0f} ms: {turns:.0f} turns"
            drawn.append(
                f'<rect x="{x + 0.5:.1f}" y="{y:.1f}" width="{right - x - 1:.1f}" height="{_y(0, highest) - y:.1f}" '
                f'class="bar"><title>{escape_text(title)}</title></rect>'
            )
    if before:
        path = "".join(
            f"L{_x(low + n * step, low, high):.1f},{_y(turns, highest):.1f}"
            f"L{_x(low + (n + 1) * step, low, high):.1f},{_y(turns, highest):.1f}"
            for n, turns in enumerate(outline)
        )
        drawn.append(f'<path d="M{path[1:]}" class="before"/>')
    close = _x(metrics.latency.p95, low, high) - _x(metrics.latency.p50, low, high) < 100
    for name, value in (("p50", metrics.latency.p50), ("p95", metrics.latency.p95)):
        x = _x(value, low, high)
        side = "end" if (name == "p50" and close) or x > _WIDTH - 60 else "middle"
        drawn.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" class="limit"/>')
        drawn.append(f'<text x="{x:.1f}" y="{_TOP - 8}" class="{side} strong">{name} {value:,.0f}</text>')
    return _svg("Distribution of turn latency", drawn)


def curve(points: Sequence[tuple[str, ReportMetrics]]) -> str:
    """Latency against false cut-offs. Each run has a dot at its p50 and a line up to its p95; a line joins the dots."""
    answered = [
        (label, metrics.cutoff_share * 100, metrics.latency, "that" if number else "this")
        for number, (label, metrics) in enumerate(points)
        if metrics.latency is not None
    ]
    if not answered:
        return '<p class="soft">No turn was answered.</p>'
    high = max(10.0, *(share for _, share, _, _ in answered)) * 1.08
    highest = 1.1 * max(100.0, *(latency.p95 for _, _, latency, _ in answered))
    drawn = [_frame(0.0, high, "false cut-offs, % of turns", highest, "ms")]
    ordered = sorted(answered, key=lambda point: point[1])
    if len(ordered) > 1:
        path = "L".join(f"{_x(share, 0, high):.1f},{_y(latency.p50, highest):.1f}" for _, share, latency, _ in ordered)
        drawn.append(f'<path d="M{path}" class="join"/>')
    for n, (label, share, latency, css_class) in enumerate(answered):
        x, y, top = _x(share, 0, high), _y(latency.p50, highest), _y(latency.p95, highest)
        neighbours = sum(abs(_x(other, 0, high) - x) < _MIN_LABEL_DISTANCE for _, other, _, _ in answered[:n])
        below = min(y + 4 + 15 * neighbours, _HEIGHT - _BOTTOM - 3)
        title = f"{label}: {share:.1f} % cut off, p50 {latency.p50:,.0f} ms, p95 {latency.p95:,.0f} ms"
        drawn.append(
            f'<g class="{css_class}"><title>{escape_text(title)}</title>'
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{top:.1f}"/>'
            f'<line x1="{x - 5:.1f}" x2="{x + 5:.1f}" y1="{top:.1f}" y2="{top:.1f}"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
            f'<text x="{x + 9:.1f}" y="{below:.1f}" class="start">{escape_text(label)}</text></g>'
        )
    return _svg("Latency against false cut-offs", drawn)


def _span(turn: Measurement) -> tuple[float, float]:
    """Start and end of a turn's bars. The server's stages end where the first audio arrived on the client's clock."""
    length = sum(_stages(turn).values())
    arrived = turn.first_audio_ms if turn.first_audio_ms is not None else turn.latency_ms
    start = (arrived if arrived is not None else length) - length if turn.stages_ms else 0.0
    return start, max(start + length, turn.latency_ms or 0.0)


def _stages(turn: Measurement) -> dict[str, float]:
    """The consecutive stages."""
    return {name: length for name, length in turn.stages_ms.items() if name != END_OF_TURN[0]}


def _bar(start: float, end: float, low: float, high: float, kind: str, title: str) -> str:
    width = 100 * (end - start) / (high - low)
    geometry = f'x="{_percent(start, low, high)}" width="{max(width, 0.15):.3f}%" y="2" height="12"'
    return f'<rect {geometry} class="{kind}"><title>{escape_text(title)}</title></rect>'


def _percent(moment: float, low: float, high: float) -> str:
    return f"{100 * (moment - low) / (high - low):.3f}%"


def _step(span: float, max_ticks: int = 8) -> float:
    """A round distance between ticks, so that at most `max_ticks` fit."""
    for power in range(9):
        for first in (1, 2, 5):
            if span / (first * 10**power) <= max_ticks:
                return float(first * 10**power)
    return span


def _ticks(low: float, high: float) -> list[float]:
    step = _step(high - low)
    return [step * n for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _counts(values: Sequence[float], low: float, step: float, count: int) -> list[float]:
    bins = [0.0] * count
    for value in values:
        bins[int((value - low) // step)] += 1
    return bins


def _x(value: float, low: float, high: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (value - low) / (high - low)


def _y(value: float, highest: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * value / highest


def _frame(low: float, high: float, x_title: str, highest: float, y_title: str) -> str:
    drawn = []
    for moment in _ticks(low, high):
        drawn.append(
            f'<text x="{_x(moment, low, high):.1f}" y="{_HEIGHT - _BOTTOM + 16}" class="middle">{moment:,.0f}</text>'
        )
    step = max(1.0, _step(highest, 5))
    for n in range(int(highest / step) + 1):
        y = _y(n * step, highest)
        drawn.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        drawn.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" class="end">{n * step:,.0f}</text>')
    drawn.append(f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 6}" class="end">{escape_text(x_title)}</text>')
    drawn.append(f'<text x="{_LEFT - 6}" y="{_TOP - 26}" class="end">{escape_text(y_title)}</text>')
    return "".join(drawn)


def _svg(label: str, drawn: Sequence[str]) -> str:
    attributes = f'class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape_text(label)}"'
    return f"<svg {attributes}>{''.join(drawn)}</svg>"
