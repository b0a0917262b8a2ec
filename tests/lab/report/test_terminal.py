"""The report as tables in the terminal."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from lab.report.html import render_page
from lab.report.measure import Measurement
from lab.report.run import Run
from lab.report.terminal import print_report
from tests.lab.report.samples import MEASUREMENTS, SPOKEN_BY_TWO, answered, run_of


def printed(run: Run, previous: Run | None = None, width: int = 120) -> str:
    out = Console(width=width, file=io.StringIO())
    print_report(run, out, previous)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_the_table_shows_both_runs_and_their_difference() -> None:
    text = " ".join(printed(run_of(MEASUREMENTS), run_of(MEASUREMENTS[:1])).split())
    assert "turn latency p50 │ 700 ms │ 400 ms │ +300" in text
    assert "interruption" in text


def test_speculations_are_started_kept_and_discarded() -> None:
    text = " ".join(printed(run_of(MEASUREMENTS)).split())
    for row in ("speculations started │ 3 ", "speculations kept │ 1 ", "speculations discarded │ 2 "):
        assert row in text


def test_drafts_are_counted_with_what_made_them() -> None:
    text = " ".join(printed(run_of(MEASUREMENTS)).split())
    for row in ("forward passes of the responses │ 12 ", "draft tokens shown │ 30 ", "draft tokens kept │ 21 "):
        assert row in text
    assert "drafted by │ copied, diffusion " in text
    text = " ".join(printed(run_of(MEASUREMENTS), run_of(MEASUREMENTS[:1])).split())
    assert "drafted by │ copied, diffusion │ – │" in text


def test_each_voice_has_a_row_and_recordings_have_none() -> None:
    text = [" ".join(line.split()) for line in printed(run_of(SPOKEN_BY_TWO)).splitlines()]
    assert "en_US-joe-medium 3 650 875 900 0 1 0 180 – 1" in text
    assert "voice turns" not in " ".join(printed(run_of(MEASUREMENTS)).split())


def test_corpora_are_reported_apart_and_compared_by_name() -> None:
    named = [replace(turn, corpus="held-out" if n else "built-in") for n, turn in enumerate(MEASUREMENTS)]
    earlier = [replace(turn, latency_ms=turn.latency_ms and turn.latency_ms + 100) for turn in named]
    text = " ".join(printed(run_of(named), run_of(earlier)).split())
    first, second = text.partition("held-out → ws://server")[::2]
    assert "built-in → ws://server" in first and "turn latency p50 │ 400 ms │ 500 ms │ -100" in first
    assert "turn latency p50 │ 800 ms │ 900 ms │ -100" in second
    assert "turns │ 1 │ 1 │" in first and "turns │ 5 │ 5 │" in second


def test_p95_is_shown_against_the_number_of_conversations() -> None:
    one = [answered(latency_ms) for latency_ms in (400, 500)]
    two = [replace(turn, latency_ms=1.2 * (turn.latency_ms or 0), sessions=2) for turn in one]
    missed = replace(Measurement("short-3", "short", "hm"), missed=True, sessions=4)
    run = run_of([*two, missed, *one])
    text = [" ".join(line.split()) for line in printed(run, width=80).splitlines()]
    assert "1 2 450 495 400 – 500 1.00 0 0" in text
    assert "2 2 540 594 480 – 600 1.20 0 0" in text
    assert "4 1 – – – – 1 0" in text
    assert not any("kind" in line for line in text)
    assert ["Conversations at the same time" in render_page(each) for each in (run, run_of(one))] == [True, False]


def test_all_tables_fit_80_columns() -> None:
    lines = printed(run_of(SPOKEN_BY_TWO), width=80).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert not any("…" in line for line in lines)
    assert "kind turns p50 p95 max missed offs end in stop channel runs" in [" ".join(line.split()) for line in lines]
