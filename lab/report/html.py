"""A report as one self-contained HTML page: with its style and charts, without scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from lab.report.charts import axis, curve, escape_text, histogram, scale, stage_class, waterfall
from lab.report.figures import ReportMetrics, stage_title
from lab.report.measure import Measurement
from lab.report.run import Run
from lab.report.terminal import GROUP_COLUMNS, group_row, number, rows
from voice.turn_metrics import END_OF_TURN

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
        others: runs to compare with. The first is compared in every metric; the curve shows all of them.

    Raises:
        OSError: the file cannot be written.
    """
    path.write_text(render_page(run, others), encoding="utf-8")


def render_page(run: Run, others: Sequence[Run] = ()) -> str:
    """The page, which is also well-formed XML."""
    previous = others[0] if others else None
    latencies = [turn.latency_ms for turn in run.measurements if turn.latency_ms is not None]
    before = [turn.latency_ms for turn in previous.measurements if turn.latency_ms is not None] if previous else []
    points = [("this run", run.metrics), *((other.date[:16].replace("T", " "), other.metrics) for other in others)]
    outline = ""
    if previous:
        date = escape_text(previous.date[:16].replace("T", " "))
        outline = f"The outline is the run of {date}, scaled to the same number of turns."
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
{_cards(run, previous)}
<div class="pair">
<section><h2>Turn latency</h2>{histogram(run.metrics, latencies, before)}<p class="soft">{outline}</p></section>
{_tradeoff(points)}
</div>
{_waterfalls(run.measurements)}
<h2>Metrics</h2>
<div class="narrow">{_metrics_table(run, previous)}</div>
<h2>Kinds of turns</h2>
{_group_table("kind", run.metrics_by_kind)}
{_voices(run)}
{_sessions(run)}
<h2>Turns</h2>
{_turns_table(run.measurements)}
</body>
</html>
"""


def _tradeoff(points: Sequence[tuple[str, ReportMetrics]]) -> str:
    """Waiting longer reduces cut-offs and adds latency. Turn logs do not show cut-offs."""
    if points[0][1].from_turn_log:
        return ""
    return f"""<section><h2>Latency against false cut-offs</h2>{curve(points)}
<p class="soft">The dot is the p50 of a run, its line extends to the p95. Waiting less moves a run down and right.</p>
</section>"""


def _about(run: Run) -> str:
    machine = [run.machine.get("cpu"), f"{run.machine.get('cores')} cores", run.machine.get("gpu")]
    paragraphs = [
        f"{run.corpus} → {run.server}, {run.date.replace('T', ' ')}",
        ", ".join(str(part) for part in machine if part),
        ", ".join(f"{role}: {name}" for role, name in run.models.items()),
        ", ".join(f"{name} {version}" for name, version in run.versions.items()),
    ]
    return "\n".join(f'<p class="soft">{escape_text(line)}</p>' for line in paragraphs if line)


def _cards(run: Run, previous: Run | None) -> str:
    metrics = run.metrics
    latency, stop = metrics.latency, metrics.barge_in_stop
    interval = latency.p95_interval if latency else (0.0, 0.0)
    cards = [
        (
            "turn latency p50",
            number(latency.p50 if latency else None, "ms"),
            f"{metrics.answered} of {metrics.turns} answered",
        ),
        (
            "turn latency p95",
            number(latency.p95 if latency else None, "ms"),
            f"95 % CI: {interval[0]:,.0f} – {interval[1]:,.0f}",
        ),
    ]
    if not metrics.from_turn_log:
        cards += [
            (
                "false cut-offs",
                number(100 * metrics.cutoff_share, "%"),
                f"{metrics.false_cutoffs} of {metrics.turns} turns",
            ),
            ("missed turns", number(metrics.missed), f"{metrics.early_commits} ended early without audio"),
            ("underruns", number(metrics.underruns), f"{metrics.underrun_ms:,.0f} ms in total"),
        ]
    if stop is not None:
        cards.append(("barge-in stop p95", number(stop.p95, "ms"), f"{stop.n} interruptions"))
    backchannels = metrics.backchannels_survived + metrics.backchannels_broken
    if backchannels:
        survived = f"{metrics.backchannels_survived} of {backchannels}"
        cards.append(("backchannels", survived, "did not stop the response"))
    if metrics.speculations is not None:
        kept = f"{metrics.speculations_used} of {metrics.speculations}"
        cards.append(("speculations kept", kept, f"{metrics.speculations_discarded} discarded"))
    before = previous.metrics.latency if previous is not None else None
    if latency is not None and before is not None:
        cards.append(("p95 change", f"{latency.p95 - before.p95:+,.0f} ms", f"before: {before.p95:,.0f} ms"))
    inside = "".join(
        f"<li><span>{escape_text(title)}</span><b>{escape_text(value)}</b><span>{escape_text(note)}</span></li>"
        for title, value, note in cards
    )
    return f'<ul class="cards">{inside}</ul>'


def _waterfalls(measurements: Sequence[Measurement]) -> str:
    """Slowest first, because the tail matters most."""
    ordered = sorted(measurements, key=lambda turn: -(turn.latency_ms if turn.latency_ms is not None else float("inf")))
    low, high = scale(measurements)
    names = dict.fromkeys(name for turn in measurements for name in turn.stages_ms if name != END_OF_TURN[0])
    colours = [*((stage_title(name), stage_class(name)) for name in names), ("until audible", "rest")]
    legend = "".join(f"<li>{_swatch(css_class)}{escape_text(name)}</li>" for name, css_class in colours)
    lines = [f'<span></span>{axis(low, high)}<span class="ms soft">ms</span>']
    for turn in ordered:
        value = escape_text(_outcome(turn))
        attribute = ' class="ms bad"' if turn.cut_off or turn.missed or turn.unasked else ' class="ms"'
        title = escape_text(f"{turn.text} — {turn.response_text}")
        lines.append(
            f'<span title="{title}">{escape_text(turn.name)}</span>{waterfall(turn, low, high)}'
            f"<span{attribute}>{value}</span>"
        )
    return f"""<h2>Turn by turn</h2>
<p class="soft">From the user's last sample, at 0, to the first audible sample of the response. Slowest first.
The mark shows when the end of the turn was certain; earlier work was speculative. Hover over a bar for its length.</p>
<ul class="legend">{legend}</ul>
<div class="fall">{"".join(lines)}</div>"""


def _swatch(css_class: str) -> str:
    return f'<svg width="10" height="10" role="presentation"><rect width="10" height="10" class="{css_class}"/></svg>'


def _outcome(turn: Measurement) -> str:
    if turn.cut_off:
        return "cut off"
    if turn.missed:
        return "missed"
    return "no response" if turn.latency_ms is None else number(turn.latency_ms)


def _metrics_table(run: Run, previous: Run | None) -> str:
    headers = ["", "this run", *((previous.date[:16].replace("T", " "), "difference") if previous else ())]
    return _table(headers, rows(run, previous), 1)


def _group_table(title: str, groups: Mapping[str, ReportMetrics]) -> str:
    return _table([title, *GROUP_COLUMNS], [[name, *group_row(metrics)] for name, metrics in groups.items()], 1)


def _voices(run: Run) -> str:
    """Recordings and turn logs have no synthesized voices."""
    groups = run.metrics_by_voice
    return f"<h2>Voices</h2>\n{_group_table('voice', groups)}" if groups else ""


def _sessions(run: Run) -> str:
    """Most runs have one number of conversations."""
    groups = {str(number): metrics for number, metrics in run.metrics_by_sessions.items()}
    title = "<h2>Conversations at the same time</h2>"
    return f"{title}\n{_group_table('conversations', groups)}" if len(groups) > 1 else ""


def _turns_table(measurements: Sequence[Measurement]) -> str:
    headers = ["turn", "voice", "user", "transcript", "response", "notes", "ms"]
    lines = [[t.name, t.voice, t.text, t.transcript, t.response_text, _notes(t), _outcome(t)] for t in measurements]
    return _table(headers, lines, 6)


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


def _table(headers: Sequence[str], lines: Sequence[Sequence[str]], numbers_from: int) -> str:
    def cell(tag: str, column: int, value: str) -> str:
        attribute = ' class="n"' if column >= numbers_from else ""
        return f"<{tag}{attribute}>{escape_text(value)}</{tag}>"

    head = "".join(cell("th", column, name) for column, name in enumerate(headers))
    body = "".join(f"<tr>{''.join(cell('td', n, value) for n, value in enumerate(line))}</tr>" for line in lines)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
