"""A report as one page that needs nothing else: style and drawings are in it, and no script."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from server.report.charts import axis, curve, histogram, scale, stage_class, text, waterfall
from server.report.figures import Figures
from server.report.measure import Measurement
from server.report.run import Run
from server.report.show import KIND_COLUMNS, kind_row, number, rows
from voice.timeline import END_OF_TURN

_STYLE = """
:root { color-scheme: light dark;
  --paper: #fbfaf7; --card: #fff; --ink: #1d2421; --soft: #5d6762; --line: #dedbd2; --accent: #1f6f5c; --warn: #a13d0c;
  --s1: #8c9bd1; --s2: #5aa0b8; --s3: #57ab8d; --s4: #9dbb58; --s5: #d9b24c; --s6: #d98b5f; --rest: #b9b4a8; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #151917; --card: #1c211f; --ink: #e6e9e6; --soft: #9aa49e; --line: #313936; --accent: #4fb396;
  --warn: #ffa877; --rest: #5d655f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 2rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.6rem 0 .6rem; }
p { margin: .3rem 0; } .soft { color: var(--soft); font-size: .9rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: .6rem; margin: 1.5rem 0 0;
  padding: 0; list-style: none; }
.cards li { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .6rem .8rem; }
.cards b { display: block; font-size: 1.3rem; white-space: nowrap; line-height: 1.25;
  font-variant-numeric: tabular-nums; }
.cards span { color: var(--soft); font-size: .82rem; display: block; }
.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 0 2rem; }
.chart { width: 100%; max-width: 42rem; height: auto; display: block; }
svg text { fill: var(--soft); font-size: 12px; } svg text.strong { fill: var(--ink); font-weight: 600; }
.middle, .mark { text-anchor: middle; } .end { text-anchor: end; } .start, .edge { text-anchor: start; }
.grid { stroke: var(--line); } .zero { stroke: var(--ink); } .bar { fill: var(--accent); }
.limit { stroke: var(--ink); stroke-dasharray: 4 3; }
.before { fill: none; stroke: var(--warn); stroke-width: 1.5; }
.join { fill: none; stroke: var(--line); stroke-width: 1.5; }
.this line, .that line { stroke-width: 2; }
.this line { stroke: var(--accent); } .this circle { fill: var(--accent); }
.this text { fill: var(--ink); font-weight: 600; }
.that line { stroke: var(--soft); } .that circle { fill: var(--soft); }
.fall { display: grid; grid-template-columns: 8.5rem 1fr 4.5rem; gap: 0 .8rem; align-items: center; font-size: .82rem; }
.fall > span { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
.fall > span.ms { text-align: right; font-variant-numeric: tabular-nums; }
.track { display: block; overflow: visible; }
.s1 { fill: var(--s1); } .s2 { fill: var(--s2); } .s3 { fill: var(--s3); } .s4 { fill: var(--s4); }
.s5 { fill: var(--s5); } .s6 { fill: var(--s6); } .rest, .other { fill: var(--rest); }
.legend { display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; margin: .2rem 0 .8rem; padding: 0; list-style: none;
  font-size: .82rem; color: var(--soft); }
.legend svg { margin-right: .35rem; vertical-align: -1px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .86rem; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 500; white-space: nowrap; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.decided line { stroke: var(--ink); stroke-width: 2; }
@media (max-width: 40rem) { .axis text:nth-child(even) { display: none; } }
.narrow { max-width: 36rem; }
.bad { color: var(--warn); }
"""


def write_page(path: Path, run: Run, others: Sequence[Run] = ()) -> None:
    """Write the page.

    Args:
        others: runs to compare with; the first beside every figure, all of them in the curve.

    Raises:
        OSError: the file cannot be written.
    """
    path.write_text(page(run, others), encoding="utf-8")


def page(run: Run, others: Sequence[Run] = ()) -> str:
    """The page; it is well-formed XML too."""
    old = others[0] if others else None
    latencies = [turn.latency_ms for turn in run.measured if turn.latency_ms is not None]
    before = [turn.latency_ms for turn in old.measured if turn.latency_ms is not None] if old else []
    points = [("this run", run.figures), *((other.date[:16].replace("T", " "), other.figures) for other in others)]
    outline = (
        f"The outline is the run of {text(old.date[:16].replace('T', ' '))}, scaled to as many turns." if old else ""
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8"/>
<meta name="viewport" content="width=device-width, initial-scale=1"/>
<title>Latency report</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>Latency report</h1>
{_about(run)}
{_cards(run, old)}
<div class="pair">
<section><h2>Turn latency</h2>{histogram(run.figures, latencies, before)}<p class="soft">{outline}</p></section>
{_tradeoff(points)}
</div>
{_waterfalls(run.measured)}
<h2>Figures</h2>
<div class="narrow">{_figures(run, old)}</div>
<h2>Kinds of turns</h2>
{_kinds(run)}
<h2>Turns</h2>
{_turns(run.measured)}
</body>
</html>
"""


def _tradeoff(points: Sequence[tuple[str, Figures]]) -> str:
    """Waiting longer cuts nobody off, and is slower; where real conversations are looked at, nobody knows."""
    if points[0][1].live:
        return ""
    return f"""<section><h2>Latency against false cut-offs</h2>{curve(points)}
<p class="soft">A dot is a run's p50, its line goes up to the p95. Waiting less moves a run down and to the right.</p>
</section>"""


def _about(run: Run) -> str:
    machine = [run.machine.get("cpu"), f"{run.machine.get('cores')} cores", run.machine.get("gpu")]
    said = [
        f"{run.corpus} → {run.server}, {run.date.replace('T', ' ')}",
        ", ".join(str(part) for part in machine if part),
        ", ".join(f"{what}: {name}" for what, name in run.models.items()),
        ", ".join(f"{name} {number_}" for name, number_ in run.versions.items()),
    ]
    return "\n".join(f'<p class="soft">{text(line)}</p>' for line in said if line)


def _cards(run: Run, old: Run | None) -> str:
    found = run.figures
    latency, stop = found.latency, found.barge_in_stop
    interval = latency.p95_interval if latency else (0.0, 0.0)
    cards = [
        (
            "turn latency p50",
            number(latency.p50 if latency else None, "ms"),
            f"{found.answered} of {found.turns} answered",
        ),
        (
            "turn latency p95",
            number(latency.p95 if latency else None, "ms"),
            f"95 %: {interval[0]:,.0f} – {interval[1]:,.0f}",
        ),
    ]
    if not found.live:
        cards += [
            ("false cut-offs", number(100 * found.cutoff_share, "%"), f"{found.false_cutoffs} of {found.turns} turns"),
            ("missed turns", number(found.missed), f"{found.early_commits} ended early, unheard"),
            ("underruns", number(found.underruns), f"{found.underrun_ms:,.0f} ms in all"),
        ]
    if stop is not None:
        cards.append(("barge-in stop p95", number(stop.p95, "ms"), f"{stop.n} interrupted"))
    if found.survived + found.broken:
        said = f"{found.survived} of {found.survived + found.broken}"
        cards.append(("backchannels", said, "did not break the answer"))
    if found.guesses is not None:
        cards.append(
            ("guesses kept", f"{found.guesses_kept} of {found.guesses}", f"{found.guesses_wasted} thrown away")
        )
    if old is not None and latency is not None and old.figures.latency is not None:
        change = latency.p95 - old.figures.latency.p95
        cards.append(("p95 against before", f"{change:+,.0f} ms", f"before: {old.figures.latency.p95:,.0f} ms"))
    inside = "".join(
        f"<li><span>{text(title)}</span><b>{text(value)}</b><span>{text(note)}</span></li>"
        for title, value, note in cards
    )
    return f'<ul class="cards">{inside}</ul>'


def _waterfalls(measured: Sequence[Measurement]) -> str:
    """Slowest first: that is where the tail is."""
    ordered = sorted(measured, key=lambda turn: -(turn.latency_ms if turn.latency_ms is not None else float("inf")))
    low, high = scale(measured)
    names = dict.fromkeys(name for turn in measured for name in turn.stages_ms if name != END_OF_TURN[0])
    colours = [*((name.replace("_", " "), stage_class(name)) for name in names), ("until audible", "rest")]
    legend = "".join(f"<li>{_swatch(kind)}{text(name)}</li>" for name, kind in colours)
    lines = [f'<span></span>{axis(low, high)}<span class="ms soft">ms</span>']
    for turn in ordered:
        value = text(_outcome(turn))
        bad = ' class="ms bad"' if turn.cut_off or turn.missed or turn.unasked else ' class="ms"'
        title = text(f"{turn.text} — {turn.answer}")
        lines.append(
            f'<span title="{title}">{text(turn.name)}</span>{waterfall(turn, low, high)}<span{bad}>{value}</span>'
        )
    return f"""<h2>Turn by turn</h2>
<p class="soft">From the user's last sample, at 0, to the first audible one. Slowest first.
The mark is where the end of the turn was sure; work done before it was a guess. Hold the pointer over a bar
for its length.</p>
<ul class="legend">{legend}</ul>
<div class="fall">{"".join(lines)}</div>"""


def _swatch(kind: str) -> str:
    return f'<svg width="10" height="10" role="presentation"><rect width="10" height="10" class="{kind}"/></svg>'


def _outcome(turn: Measurement) -> str:
    if turn.cut_off:
        return "cut off"
    if turn.missed:
        return "missed"
    return "quiet" if turn.latency_ms is None else number(turn.latency_ms)


def _figures(run: Run, old: Run | None) -> str:
    heads = ["", "this run", *((old.date[:16].replace("T", " "), "difference") if old else ())]
    return _table(heads, rows(run, old), 1)


def _kinds(run: Run) -> str:
    return _table(["kind", *KIND_COLUMNS], [[kind, *kind_row(found)] for kind, found in run.by_kind.items()], 1)


def _turns(measured: Sequence[Measurement]) -> str:
    heads = ["turn", "said", "understood", "answered", "notes", "ms"]
    lines = [[t.name, t.text, t.heard, t.answer, _notes(t), _outcome(t)] for t in measured]
    return _table(heads, lines, 5)


def _notes(turn: Measurement) -> str:
    notes = [
        "ended early" if turn.early_commit else "",
        "answered unasked" if turn.unasked else "",
        "answer broken off" if turn.broken_off else "",
        f"stopped after {turn.barge_in_stop_ms:,.0f} ms" if turn.barge_in_stop_ms is not None else "",
        f"backchannel {turn.backchannel}" if turn.backchannel else "",
        f"silent for {turn.pause_ms:,.0f} ms" if turn.pause_ms is not None else "",
        f"ran dry {turn.underruns} times, {turn.underrun_ms:,.0f} ms" if turn.underruns else "",
        f"{turn.guesses} guesses" if turn.guesses else "",
        f"waited {turn.waited_ms:,.0f} ms" if turn.waited_ms is not None else "",
        f"over with {turn.over:.2f}" if turn.over is not None else "",
    ]
    return ", ".join(note for note in notes if note)


def _table(heads: Sequence[str], lines: Sequence[Sequence[str]], numbers_from: int) -> str:
    def cell(kind: str, place: int, value: str) -> str:
        marked = ' class="n"' if place >= numbers_from else ""
        return f"<{kind}{marked}>{text(value)}</{kind}>"

    head = "".join(cell("th", place, name) for place, name in enumerate(heads))
    body = "".join(f"<tr>{''.join(cell('td', n, value) for n, value in enumerate(line))}</tr>" for line in lines)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
