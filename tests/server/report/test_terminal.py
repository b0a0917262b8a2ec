"""The report as tables in the terminal."""

from __future__ import annotations

import io

from rich.console import Console

from server.report.run import Run
from server.report.terminal import print_report
from tests.server.report.samples import MEASUREMENTS, SPOKEN_BY_TWO, run_of


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


def test_each_voice_has_a_row_and_recordings_have_none() -> None:
    text = [" ".join(line.split()) for line in printed(run_of(SPOKEN_BY_TWO)).splitlines()]
    assert "en_US-joe-medium 3 650 875 900 0 1 0 180 – 1" in text
    assert "voice turns" not in " ".join(printed(run_of(MEASUREMENTS)).split())


def test_all_tables_fit_80_columns() -> None:
    lines = printed(run_of(SPOKEN_BY_TWO), width=80).splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    assert not any("…" in line for line in lines)
    assert "kind turns p50 p95 max missed offs end in stop channel runs" in [" ".join(line.split()) for line in lines]
