"""A report as one self-contained HTML page: with its style and charts, without scripts."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from lab.report import charts
from lab.report.figures import ReportMetrics, stage_title
from lab.report.measure import Measurement
from lab.report.run import Run
from lab.report.terminal import GROUP_COLUMNS, group_row, number, rows
from voice.turn_metrics import END_OF_TURN

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


def _printable(value: object) -> object:
    """What is printed, without the control characters that XML forbids."""
    return value if isinstance(value, Markup) else _CONTROL_CHARACTERS.sub("", str(value))


def write_page(path: Path, run: Run, others: Sequence[Run] = ()) -> None:
    """Write the page.

    Args:
        others: runs to compare with. The first is compared in every metric; the curve shows all of them.

    Raises:
        OSError: the file cannot be written.
    """
    path.write_text(render_page(run, others), encoding="utf-8")


def render_page(run: Run, others: Sequence[Run] = ()) -> str:
    """The page, which is also well-formed XML."""
    previous = _comparable(run, others[0]) if others else None
    spoken = [other for other in others if not other.metrics.from_turn_log]  # a log does not know what was cut off
    latencies = [turn.latency_ms for turn in run.measurements if turn.latency_ms is not None]
    before = [turn.latency_ms for turn in previous.measurements if turn.latency_ms is not None] if previous else []
    stages = dict.fromkeys(name for turn in run.measurements for name in turn.stages_ms if name != END_OF_TURN[0])
    return _TEMPLATES.get_template("report.html.jinja").render(
        run=run,
        previous=previous,
        histogram=charts.histogram(latencies, before),
        curve=charts.curve([("this run", run.metrics), *((_minute(one), one.metrics) for one in spoken)]),
        # Slowest first, because the tail matters most.
        turns=sorted(run.measurements, key=lambda t: math.inf if t.latency_ms is None else t.latency_ms, reverse=True),
        stages=[*((stage_title(name), charts.stage_class(name)) for name in stages), ("until audible", "rest")],
        scale=charts.scale(run.measurements),
        metrics_rows=rows(run, previous),
        turn_lines=[
            [t.name, t.voice, t.text, t.transcript, t.response_text, _notes(t), _outcome(t)] for t in run.measurements
        ],
    )


def _comparable(run: Run, other: Run) -> Run | None:
    """What a run is compared with: the turns of its corpora in another run; None if that lacks one of them."""
    own, others = ({turn.corpus for turn in one.measurements} for one in (run, other))
    if len(own) == len(others) == 1:
        return other
    if not own <= others:
        return None
    return replace(other, measurements=[turn for turn in other.measurements if turn.corpus in own])


def _minute(run: Run) -> str:
    return run.date[:16].replace("T", " ")


def _group_lines(groups: Mapping[str, ReportMetrics] | Mapping[int, ReportMetrics]) -> list[list[str]]:
    return [[str(name), *group_row(metrics)] for name, metrics in groups.items()]


def _outcome(turn: Measurement) -> str:
    if turn.cut_off:
        return "cut off"
    if turn.missed:
        return "missed"
    if turn.unasked:
        return "unexpected response"
    return "no response" if turn.latency_ms is None else number(turn.latency_ms)


def _notes(turn: Measurement) -> str:
    notes = [
        "ended early" if turn.early_commit else "",
        "unexpected response" if turn.unasked else "",
        "response broken off" if turn.broken_off else "",
        f"stopped {turn.barge_in_stop_ms:,.0f} ms after barge-in" if turn.barge_in_stop_ms is not None else "",
        f"backchannel {turn.backchannel}" if turn.backchannel else "",
        f"paused for {turn.pause_ms:,.0f} ms" if turn.pause_ms is not None else "",
        f"underruns: {turn.underruns}, {turn.underrun_ms:,.0f} ms" if turn.underruns else "",
        f"speculations: {turn.speculations}" if turn.speculations else "",
        f"waited {turn.waited_ms:,.0f} ms" if turn.waited_ms is not None else "",
        f"end probability {turn.end_probability:.2f}" if turn.end_probability is not None else "",
    ]
    return ", ".join(note for note in notes if note)


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parent),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=_printable,
)
_TEMPLATES.globals |= {"waterfall": charts.waterfall, "span": charts.span, "group_columns": [*GROUP_COLUMNS]}
_TEMPLATES.filters |= {
    "whole": "{:,.0f}".format,
    "px": "{:.1f}".format,
    "number": number,
    "minute": _minute,
    "outcome": _outcome,
    "group_lines": _group_lines,
}
