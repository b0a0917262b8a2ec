"""The report's drawings, as inline SVG that takes its colours from the page around it. Everything is escaped."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from html import escape

from server.report.figures import Figures
from server.report.measure import Measurement
from voice.timeline import END_OF_TURN, STAGES

_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")

_NAMES = [name for name, _, _ in STAGES]

_WIDTH, _HEIGHT = 560, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 16, 44, 40

_BINS = 24

_NEAR = 60
"""Runs whose marks are this near to each other have their names below each other."""


def text(said: object) -> str:
    """Escaped for the inside of elements and of quoted attributes; without signs that no page may hold."""
    return escape(_CONTROLS.sub("", str(said)))


def stage_class(name: str) -> str:
    """The colour of a stage; those of other servers share one."""
    return f"s{_NAMES.index(name) + 1}" if name in _NAMES else "other"


def scale(measured: Sequence[Measurement]) -> tuple[float, float]:
    """From and to, in ms, of an axis that holds every turn's bars, 0 among them."""
    low, high = 0.0, 100.0
    for turn in measured:
        start, end = _span(turn)
        low, high = min(low, start), max(high, end)
    step = _step(high - low)
    low = low if low < -0.02 * step else 0.0  # rounding, not a detector that heard the end before it was there
    return math.floor(low / step) * step, math.ceil(high / step) * step


def axis(low: float, high: float) -> str:
    """The axis above a waterfall."""
    marks = "".join(
        f'<text x="{_percent(at, low, high)}" y="12" class="{"edge" if at == low else "mark"}">{at:,.0f}</text>'
        for at in _ticks(low, high)[:-1]
    )
    return f'<svg class="track axis" width="100%" height="16" role="presentation">{marks}</svg>'


def waterfall(turn: Measurement, low: float, high: float) -> str:
    """One turn's bars, the user's last sample at 0: the server's stages up to the arrival of the first sound, then
    what passed before it could be heard; a mark where the end of the turn was sure."""
    bars = [
        f'<line x1="{_percent(at, low, high)}" x2="{_percent(at, low, high)}" y1="0" y2="16" '
        f'class="{"zero" if at == 0 else "grid"}"/>'
        for at in _ticks(low, high)
    ]
    start, end = _span(turn)
    at = start
    for name, length in _stages(turn).items():
        title = f"{name.replace('_', ' ')}: {length:,.0f} ms, from {at:,.0f} ms"
        bars.append(_bar(at, at + length, low, high, stage_class(name), title))
        at += length
    decided = turn.stages_ms.get(END_OF_TURN[0])
    if decided is not None:
        place = _percent(start + decided, low, high)
        title = f"end of turn sure: {decided:,.0f} ms after the last speech that was detected"
        bars.append(
            f'<g class="decided"><title>{text(title)}</title><line x1="{place}" x2="{place}" y1="0" y2="16"/></g>'
        )
    if turn.latency_ms is not None and turn.latency_ms - max(at, 0.0) > 0.5:
        what = "until audible" if turn.stages_ms else "until the first audible sample"
        title = f"{what}: {turn.latency_ms - max(at, 0.0):,.0f} ms"
        bars.append(_bar(max(at, 0.0), turn.latency_ms, low, high, "rest", title))
    label = f"{turn.name}: {end:,.0f} ms" if turn.latency_ms is not None else f"{turn.name}: no latency"
    return f'<svg class="track" width="100%" height="16" role="img" aria-label="{text(label)}">{"".join(bars)}</svg>'


def histogram(found: Figures, latencies: Sequence[float], before: Sequence[float] = ()) -> str:
    """How the latencies are spread, with marks at p50 and p95; `before` is drawn as an outline, scaled to as many
    turns."""
    if found.latency is None:
        return '<p class="soft">No turn was answered.</p>'
    every = [*latencies, *before]
    step = _step(max(every) - min(0.0, *every), _BINS)
    low = math.floor(min(0.0, *every) / step) * step
    count = int((max(every) - low) // step) + 1
    high = low + count * step
    bins, theirs = _counts(latencies, low, step, count), _counts(before, low, step, count)
    theirs = [n * len(latencies) / len(before) for n in theirs] if before else theirs
    most = max(1.0, *bins, *theirs)
    drawn = [_frame(low, high, "ms from the user's last sample to the first audible one", most, "turns")]
    for n, turns in enumerate(bins):
        if turns:
            x, right = _x(low + n * step, low, high), _x(low + (n + 1) * step, low, high)
            y = _y(turns, most)
            said = f"{low + n * step:,.0f} to {low + (n + 1) * step:,.0f} ms: {turns:.0f} turns"
            drawn.append(
                f'<rect x="{x + 0.5:.1f}" y="{y:.1f}" width="{right - x - 1:.1f}" height="{_y(0, most) - y:.1f}" '
                f'class="bar"><title>{text(said)}</title></rect>'
            )
    if before:
        path = "".join(
            f"L{_x(low + n * step, low, high):.1f},{_y(turns, most):.1f}"
            f"L{_x(low + (n + 1) * step, low, high):.1f},{_y(turns, most):.1f}"
            for n, turns in enumerate(theirs)
        )
        drawn.append(f'<path d="M{path[1:]}" class="before"/>')
    crowded = _x(found.latency.p95, low, high) - _x(found.latency.p50, low, high) < 100
    for name, value in (("p50", found.latency.p50), ("p95", found.latency.p95)):
        x = _x(value, low, high)
        side = "end" if (name == "p50" and crowded) or x > _WIDTH - 60 else "middle"
        drawn.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}" class="limit"/>')
        drawn.append(f'<text x="{x:.1f}" y="{_TOP - 8}" class="{side} strong">{name} {value:,.0f}</text>')
    return _svg("Distribution of turn latency", drawn)


def curve(points: Sequence[tuple[str, Figures]]) -> str:
    """Latency against false cut-offs: for each run a dot at its p50 and a line up to its p95, joined from run to
    run."""
    known = [
        (label, found.cutoff_share * 100, found.latency, "that" if number else "this")
        for number, (label, found) in enumerate(points)
        if found.latency is not None
    ]
    if not known:
        return '<p class="soft">No turn was answered.</p>'
    high = max(10.0, *(share for _, share, _, _ in known)) * 1.08
    most = 1.1 * max(100.0, *(latency.p95 for _, _, latency, _ in known))
    drawn = [_frame(0.0, high, "false cut-offs, % of turns", most, "ms")]
    ordered = sorted(known, key=lambda point: point[1])
    if len(ordered) > 1:
        path = "L".join(f"{_x(share, 0, high):.1f},{_y(latency.p50, most):.1f}" for _, share, latency, _ in ordered)
        drawn.append(f'<path d="M{path}" class="join"/>')
    for n, (label, share, latency, here) in enumerate(known):
        x, y, top = _x(share, 0, high), _y(latency.p50, most), _y(latency.p95, most)
        beside = sum(abs(_x(other, 0, high) - x) < _NEAR for _, other, _, _ in known[:n])
        below = min(y + 4 + 15 * beside, _HEIGHT - _BOTTOM - 3)
        said = f"{label}: {share:.1f} % cut off, p50 {latency.p50:,.0f} ms, p95 {latency.p95:,.0f} ms"
        drawn.append(
            f'<g class="{here}"><title>{text(said)}</title>'
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y:.1f}" y2="{top:.1f}"/>'
            f'<line x1="{x - 5:.1f}" x2="{x + 5:.1f}" y1="{top:.1f}" y2="{top:.1f}"/>'
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5"/>'
            f'<text x="{x + 9:.1f}" y="{below:.1f}" class="start">{text(label)}</text></g>'
        )
    return _svg("Latency against false cut-offs", drawn)


def _span(turn: Measurement) -> tuple[float, float]:
    """From and to of a turn's bars. The server's stages end where the first sound came, whatever its clock says."""
    length = sum(_stages(turn).values())
    arrived = turn.first_audio_ms if turn.first_audio_ms is not None else turn.latency_ms
    start = (arrived if arrived is not None else length) - length if turn.stages_ms else 0.0
    return start, max(start + length, turn.latency_ms or 0.0)


def _stages(turn: Measurement) -> dict[str, float]:
    """Those that lie one behind the other."""
    return {name: length for name, length in turn.stages_ms.items() if name != END_OF_TURN[0]}


def _bar(start: float, end: float, low: float, high: float, kind: str, title: str) -> str:
    width = 100 * (end - start) / (high - low)
    place = f'x="{_percent(start, low, high)}" width="{max(width, 0.15):.3f}%" y="2" height="12"'
    return f'<rect {place} class="{kind}"><title>{text(title)}</title></rect>'


def _percent(at: float, low: float, high: float) -> str:
    return f"{100 * (at - low) / (high - low):.3f}%"


def _step(span: float, most: int = 8) -> float:
    """A round distance of which at most so many fit."""
    for power in range(9):
        for first in (1, 2, 5):
            if span / (first * 10**power) <= most:
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


def _y(value: float, most: float) -> float:
    return _HEIGHT - _BOTTOM - (_HEIGHT - _BOTTOM - _TOP) * value / most


def _frame(low: float, high: float, across: str, most: float, up: str) -> str:
    drawn = []
    for at in _ticks(low, high):
        drawn.append(f'<text x="{_x(at, low, high):.1f}" y="{_HEIGHT - _BOTTOM + 16}" class="middle">{at:,.0f}</text>')
    step = max(1.0, _step(most, 5))
    for n in range(int(most / step) + 1):
        y = _y(n * step, most)
        drawn.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        drawn.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" class="end">{n * step:,.0f}</text>')
    drawn.append(f'<text x="{_WIDTH - _RIGHT}" y="{_HEIGHT - 6}" class="end">{text(across)}</text>')
    drawn.append(f'<text x="{_LEFT - 6}" y="{_TOP - 26}" class="end">{text(up)}</text>')
    return "".join(drawn)


def _svg(label: str, drawn: Sequence[str]) -> str:
    inside = "".join(drawn)
    return f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{text(label)}">{inside}</svg>'
