"""A report as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable

from rich import box
from rich.console import Console
from rich.table import Column, Table

from server.report.figures import Distribution, Figures
from server.report.run import Run

Row = tuple[str, Callable[[Figures], float | None], str]


def _value(values: Distribution | None, name: str) -> float | None:
    return None if values is None else float(getattr(values, name))


def _percentile(name: str) -> Callable[[Figures], float | None]:
    return lambda found: _value(found.latency, name)


def _stop(name: str) -> Callable[[Figures], float | None]:
    return lambda found: _value(found.barge_in_stop, name)


def _sent(name: str) -> Callable[[Figures], float | None]:
    return lambda found: _value(found.barge_in_sent, name)


def _heard(read: Callable[[Figures], float | None]) -> Callable[[Figures], float | None]:
    """What only a client knows."""
    return lambda found: None if found.live else read(found)


ROWS: tuple[Row, ...] = (
    *((f"turn latency {name}", _percentile(name), "ms") for name in ("p50", "p90", "p95", "p99", "max")),
    ("turns", lambda found: found.turns, ""),
    ("answered", lambda found: found.answered, ""),
    ("missed", _heard(lambda found: found.missed), ""),
    ("answered unasked", lambda found: found.unasked or None, ""),
    ("false cut-offs", _heard(lambda found: found.false_cutoffs), ""),
    ("false cut-offs, share", _heard(lambda found: 100 * found.cutoff_share), "%"),
    ("ended early, unheard", _heard(lambda found: found.early_commits), ""),
    *((f"barge-in stop {name}", _stop(name), "ms") for name in ("p50", "p95", "max")),
    ("barge-in, last sent p95", _sent("p95"), "ms"),
    ("backchannels survived", lambda found: found.survived if found.survived + found.broken else None, ""),
    ("  silent meanwhile", lambda found: found.resumed if found.survived + found.broken else None, ""),
    ("backchannels broken", lambda found: found.broken if found.survived + found.broken else None, ""),
    ("answers broken off", _heard(lambda found: found.broken_off), ""),
    ("underruns", _heard(lambda found: found.underruns), ""),
    ("underruns in all", _heard(lambda found: found.underrun_ms), "ms"),
    ("guesses begun", lambda found: found.guesses, ""),
    ("guesses kept", lambda found: found.guesses_kept, ""),
    ("guesses wasted", lambda found: found.guesses_wasted, ""),
    ("drafts spoken ahead", lambda found: found.drafts_spoken, ""),
    ("drafts thrown away", lambda found: found.drafts_dropped, ""),
)
"""What a report says, in its order: title, figure, unit."""


def number(value: float | None, unit: str = "") -> str:
    """A figure for people; a dash where there is none."""
    if value is None:
        return "–"
    digits = 1 if unit == "%" else 0
    return f"{value:,.{digits}f}{' ' if unit else ''}{unit}"


def rows(run: Run, old: Run | None) -> list[list[str]]:
    """Title, this run's figure, and with `old` its figure and the difference; without figures that no run has."""
    new, before = run.figures, old.figures if old else None
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
            note = ["  95 % interval of it", f"{low:,.0f} – {high:,.0f} ms"]
            if before is not None:
                theirs = before.latency.p95_interval if before.latency else None
                note += [f"{theirs[0]:,.0f} – {theirs[1]:,.0f} ms" if theirs else "–", ""]
            lines.append(note)
    return lines


def show(run: Run, out: Console, old: Run | None = None) -> None:
    """Print the figures, beside those of `old`, and the figures of each kind of turn."""
    columns = [Column(""), Column("this run", justify="right")]
    if old is not None:
        columns += [Column(f"{old.date[:16]}", justify="right"), Column("difference", justify="right")]
    table = Table(*columns, title=f"{run.corpus} → {run.server}")
    for line in rows(run, old):
        table.add_row(*line)
    out.print(table)
    kinds = Table(
        Column("kind", no_wrap=True, min_width=12),
        *(Column(name, justify="right") for name in KIND_COLUMNS),
        box=box.SIMPLE,
        pad_edge=False,
        collapse_padding=True,
    )
    for kind, found in run.by_kind.items():
        kinds.add_row(kind, *kind_row(found))
    out.print(kinds)
    late = max((turn.late_ms for turn in run.measured), default=0.0)
    if late > 40:
        out.print(
            f"This machine sent the sound up to {late:.0f} ms late: it was too busy to measure well.", style="yellow"
        )


KIND_COLUMNS = ("turns", "p50", "p95", "max", "missed", "cut", "early", "stop", "kept", "dry")
"""Of one kind: percentiles of turn latency, missed turns, false cut-offs, turns ended early but unheard, p95 of the
barge-in stop, answers that went on behind a backchannel, underruns."""


def kind_row(found: Figures) -> list[str]:
    """One kind's figures, below `KIND_COLUMNS`."""
    talked = found.survived + found.broken
    return [
        number(found.turns),
        *(number(_value(found.latency, name)) for name in ("p50", "p95", "max")),
        *(number(None if found.live else n) for n in (found.missed, found.false_cutoffs, found.early_commits)),
        number(_value(found.barge_in_stop, "p95")),
        f"{found.survived}/{talked}" if talked else "–",
        number(None if found.live else found.underruns),
    ]


def _stage_rows(new: Figures, old: Figures | None) -> list[Row]:
    names = dict.fromkeys([*new.stages_ms, *(old.stages_ms if old else {})])
    return [
        (f"{name.replace('_', ' ')} {share}", _stage(name, share), "ms") for name in names for share in ("p50", "p95")
    ]


def _stage(name: str, share: str) -> Callable[[Figures], float | None]:
    return lambda found: found.stages_ms.get(name, {}).get(share)
