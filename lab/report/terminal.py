"""Prints a report as tables in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich import box
from rich.console import Console
from rich.table import Column, Table

from lab.report.figures import Distribution, ReportMetrics, p95_slowdowns, stage_title
from lab.report.run import Run

_MAX_LATENESS_MS = 40
"""Above this lateness the report warns that the machine was too busy."""

Row = tuple[str, Callable[[ReportMetrics], float | None], str]


def _value(values: Distribution | None, name: str) -> float | None:
    return None if values is None else float(getattr(values, name))


def _percentile(name: str) -> Callable[[ReportMetrics], float | None]:
    return lambda metrics: _value(metrics.latency, name)


def _stop(name: str) -> Callable[[ReportMetrics], float | None]:
    return lambda metrics: _value(metrics.barge_in_stop, name)


def _sent(name: str) -> Callable[[ReportMetrics], float | None]:
    return lambda metrics: _value(metrics.barge_in_sent, name)


def _client_side(read: Callable[[ReportMetrics], float | None]) -> Callable[[ReportMetrics], float | None]:
    """A metric that only a client can observe."""
    return lambda metrics: None if metrics.from_turn_log else read(metrics)


ROWS: tuple[Row, ...] = (
    *((f"turn latency {name}", _percentile(name), "ms") for name in ("p50", "p90", "p95", "p99", "max")),
    ("turns", lambda metrics: metrics.turns, ""),
    ("answered", lambda metrics: metrics.answered, ""),
    ("missed", _client_side(lambda metrics: metrics.missed), ""),
    ("unexpected responses", lambda metrics: metrics.unasked or None, ""),
    ("false cut-offs", _client_side(lambda metrics: metrics.false_cutoffs), ""),
    ("false cut-offs, share", _client_side(lambda metrics: 100 * metrics.cutoff_share), "%"),
    ("early end of turn, no audio", _client_side(lambda metrics: metrics.early_commits), ""),
    *((f"barge-in stop {name}", _stop(name), "ms") for name in ("p50", "p95", "max")),
    ("barge-in, last audio received p95", _sent("p95"), "ms"),
    (
        "responses that survived backchannels",
        lambda metrics: metrics.backchannels_survived if _backchannels(metrics) else None,
        "",
    ),
    ("  after a pause", lambda metrics: metrics.backchannels_resumed if _backchannels(metrics) else None, ""),
    (
        "responses broken off by backchannels",
        lambda metrics: metrics.backchannels_broken if _backchannels(metrics) else None,
        "",
    ),
    ("responses broken off otherwise", _client_side(lambda metrics: metrics.broken_off), ""),
    ("underruns", _client_side(lambda metrics: metrics.underruns), ""),
    ("underruns, total", _client_side(lambda metrics: metrics.underrun_ms), "ms"),
    ("speculations started", lambda metrics: metrics.speculations, ""),
    ("speculations kept", lambda metrics: metrics.speculations_used, ""),
    ("speculations discarded", lambda metrics: metrics.speculations_discarded, ""),
    ("drafted clauses spoken", lambda metrics: metrics.drafts_spoken, ""),
    ("drafted clauses discarded", lambda metrics: metrics.drafts_dropped, ""),
    ("forward passes of the responses", lambda metrics: metrics.steps, ""),
    ("draft tokens shown", lambda metrics: metrics.drafts_shown, ""),
    ("draft tokens kept", lambda metrics: metrics.drafts_kept, ""),
)
"""The rows of a report: title, metric, unit."""


def number(value: float | None, unit: str = "") -> str:
    """A formatted number; a dash for None."""
    if value is None:
        return "–"
    digits = 1 if unit == "%" else 0
    return f"{value:,.{digits}f}{' ' if unit else ''}{unit}"


def rows(run: Run, previous: Run | None) -> list[list[str]]:
    """Title, this run's value, and with `previous` its value and the difference. Rows without values are left out."""
    new, before = run.metrics, previous.metrics if previous else None
    lines = []
    for title, read, unit in (*ROWS, *_stage_rows(new, before)):
        value, earlier = read(new), read(before) if before else None
        if value is None and earlier is None:
            continue
        line = [title, number(value, unit)]
        if before is not None:
            both = value is not None and earlier is not None
            line += [number(earlier, unit), f"{value - earlier:+,.{1 if unit == '%' else 0}f}" if both else ""]  # type: ignore[operator]
        lines.append(line)
        if title == "turn latency p95" and new.latency is not None:
            low, high = new.latency.p95_interval
            note = ["  95 % confidence interval", f"{low:,.0f} – {high:,.0f} ms"]
            if before is not None:
                theirs = before.latency.p95_interval if before.latency else None
                note += [f"{theirs[0]:,.0f} – {theirs[1]:,.0f} ms" if theirs else "–", ""]
            lines.append(note)
        if title == "draft tokens shown" and new.drafted_by:
            note = ["  drafted by", ", ".join(new.drafted_by)]
            lines.append(note if before is None else [*note, ", ".join(before.drafted_by) or "–", ""])
    return lines


def print_report(run: Run, out: Console, previous: Run | None = None) -> None:
    """Print the metrics, compared with those of `previous`, and the metrics of each kind of turn and of each voice. Of
    a run with several numbers of conversations at the same time, print what that number changes instead. Corpora are
    printed one after another."""
    for part in run.parts:
        if len(by_sessions := part.metrics_by_sessions) > 1:
            out.print(_sessions_table(f"{part.corpus} → {part.server}", by_sessions))
        else:
            _print_metrics(part, out, _counterpart(part, run, previous))
    late_ms = max((turn.late_ms for turn in run.measurements), default=0.0)
    if late_ms > _MAX_LATENESS_MS:
        out.print(
            f"Audio was sent up to {late_ms:.0f} ms late: this machine was too busy for accurate measurements.",
            style="yellow",
        )


def _counterpart(part: Run, run: Run, previous: Run | None) -> Run | None:
    """What a part of `run` is compared with: the same corpus, or whatever there is if both runs have only one."""
    if previous is None or (part is run and len(previous.parts) == 1):
        return previous
    return next((other for other in previous.parts if other.corpus == part.corpus), None)


def _sessions_table(title: str, by_sessions: Mapping[int, ReportMetrics]) -> Table:
    columns = ["sessions", "turns", "p50", "p95", "95 % interval", "slowdown", "missed", "cut-offs"]
    table = Table(*(Column(name, justify="right") for name in columns), title=title, box=box.SIMPLE)
    slowdowns = p95_slowdowns(by_sessions)
    for sessions, metrics in by_sessions.items():
        interval = "–" if metrics.latency is None else " – ".join(f"{end:,.0f}" for end in metrics.latency.p95_interval)
        slowdown = slowdowns[sessions]
        table.add_row(
            str(sessions),
            number(metrics.turns),
            *(number(_value(metrics.latency, name)) for name in ("p50", "p95")),
            interval,
            "–" if slowdown is None else f"{slowdown:.2f}",
            number(metrics.missed),
            number(metrics.false_cutoffs),
        )
    return table


def _print_metrics(run: Run, out: Console, previous: Run | None) -> None:
    columns = [Column(""), Column("this run", justify="right")]
    if previous is not None:
        columns += [Column(f"{previous.date[:16]}", justify="right"), Column("difference", justify="right")]
    table = Table(*columns, title=f"{run.corpus} → {run.server}")
    for line in rows(run, previous):
        table.add_row(*line)
    out.print(table)
    out.print(_group_table("kind", run.metrics_by_kind))
    if run.metrics_by_voice:
        out.print(_group_table("voice", run.metrics_by_voice))


def _group_table(title: str, groups: Mapping[str, ReportMetrics]) -> Table:
    table = Table(
        Column(title, no_wrap=True, min_width=12),
        *(Column(title, justify="right", no_wrap=True) for title in GROUP_COLUMNS.values()),
        box=box.SIMPLE,
        padding=0,
    )
    for name, metrics in groups.items():
        table.add_row(name, *group_row(metrics))
    return table


GROUP_COLUMNS = {
    "turns": "turns",
    "p50": "p50",
    "p95": "p95",
    "max": "max",
    "missed": "missed",
    "false cut-offs": "cut-\noffs",
    "early end": "early\nend",
    "barge-in stop": "barge-\nin stop",
    "backchannels": "back-\nchannel",
    "underruns": "under-\nruns",
}
"""Columns of the tables of kinds and voices, with a narrow title for the terminal: percentiles of turn latency, missed
turns, false cut-offs, turns that ended early without audio, p95 of the barge-in stop, responses that survived a
backchannel, underruns."""


def group_row(metrics: ReportMetrics) -> list[str]:
    """The metrics of one kind of turn or of one voice, in the order of `GROUP_COLUMNS`."""
    backchannels = _backchannels(metrics)
    return [
        number(metrics.turns),
        *(number(_value(metrics.latency, name)) for name in ("p50", "p95", "max")),
        *(
            number(None if metrics.from_turn_log else n)
            for n in (metrics.missed, metrics.false_cutoffs, metrics.early_commits)
        ),
        number(_value(metrics.barge_in_stop, "p95")),
        f"{metrics.backchannels_survived}/{backchannels}" if backchannels else "–",
        number(None if metrics.from_turn_log else metrics.underruns),
    ]


def _backchannels(metrics: ReportMetrics) -> int:
    return metrics.backchannels_survived + metrics.backchannels_broken


def _stage_rows(new: ReportMetrics, previous: ReportMetrics | None) -> list[Row]:
    names = dict.fromkeys([*new.stages_ms, *(previous.stages_ms if previous else {})])
    return [(f"{stage_title(name)} {share}", _stage(name, share), "ms") for name in names for share in ("p50", "p95")]


def _stage(name: str, share: str) -> Callable[[ReportMetrics], float | None]:
    return lambda metrics: metrics.stages_ms.get(name, {}).get(share)
