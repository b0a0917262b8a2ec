"""`rejoinder report`, with measurements that take no time."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from lab.report import new_run
from lab.report.corpus import SpokenTurn, built_in
from lab.report.measure import Measurement
from tests.lab.report.samples import MEASUREMENTS, FakeSynthesizer, answered


def report(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["report", *arguments], env={"COLUMNS": "400", "NO_COLOR": "1"})
    return result.exit_code, " ".join(result.output.split())


@pytest.fixture
def _instant_measurements(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def measure_turns(
        settings: object, turns: list[SpokenTurn], browser: None, console: object
    ) -> list[Measurement]:
        return MEASUREMENTS

    def corpus(name: str, options: new_run.ReportOptions, console: object) -> list[SpokenTurn]:
        return built_in(lambda name: FakeSynthesizer(), tmp_path, ("fake",))

    monkeypatch.setattr(new_run, "_corpus", corpus)
    monkeypatch.setattr(new_run, "_measure_turns", measure_turns)


@pytest.mark.usefixtures("_instant_measurements")
def test_an_exceeded_limit_exits_with_3_after_all_files_are_written(tmp_path: Path) -> None:
    files = ("--json", str(tmp_path / "r.json"), "--html", str(tmp_path / "r.html"))
    assert report("--limit", "p95=2000", *files)[0] == 0
    code, output = report("--limit", "p95=100", "--limit", "missed=0", *files)
    assert code == 3
    assert "above the limit of 100 ms" in output and "missed turns is 1" in output
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")
    assert report("--compare", str(tmp_path / "r.json"))[0] == 0


@pytest.mark.usefixtures("_instant_measurements")
def test_each_corpus_must_meet_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def measure_turns(
        settings: object, turns: list[SpokenTurn], browser: None, console: object
    ) -> list[Measurement]:
        assert {turn.corpus for turn in turns} == {"the built-in corpus", "the held-out corpus"}
        return [answered(300, corpus="the built-in corpus"), answered(900, corpus="the held-out corpus")]

    monkeypatch.setattr(new_run, "_measure_turns", measure_turns)
    code, output = report("--corpus", "built-in", "--corpus", "held-out", "--limit", "p50=700")
    assert code == 3
    assert "the held-out corpus: turn latency p50 is 900 ms" in output
    assert "the built-in corpus: turn latency" not in output


def test_the_held_out_corpus_needs_a_clone_of_the_repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(new_run, "HELD_OUT", tmp_path / "nowhere")
    code, output = report("--corpus", "held-out", "--url", "ws://127.0.0.1:9/v1/realtime")
    assert (code, "in a clone of the repository" in output) == (1, True)


def test_a_file_that_is_not_a_report_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[1]")
    code, output = report("--compare", str(tmp_path / "x.json"))
    assert (code, "is not a report" in output) == (1, True)
    assert "there is no report" in report("--compare", str(tmp_path / "y.json"))[1]


def test_a_wrong_voice_is_answered_with_the_names_of_all_voices_before_anything_is_synthesized(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path))
    (tmp_path / "mine.onnx").touch()
    code, output = report("--voices", f"{tmp_path / 'mine.onnx'}, kokoro:emma", "--url", "ws://127.0.0.1:9/v1/realtime")
    assert code == 1
    assert "no voice is called 'kokoro:emma'; known voices are en_US-joe-medium, kokoro:af_heart" in output
    assert "Synthesizing" not in output


@pytest.mark.usefixtures("_instant_measurements")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--limit", "p95"], "a limit looks like p95=1000"),
        (["--kind", "shouted"], "no turns of kind 'shouted'"),
        (["--json", "/no/such/folder/r.json"], "there is no folder /no/such/folder"),
        (["--turn-log", "/no/such.sqlite"], "there is no turn log"),
        (["--phone", "twilio", "--eagerness", "low"], "phone calls do not use"),
        (["--voices", "kokoro:bf_emma", "--corpus", "folder"], "omit it, or --corpus"),
        (["--page", "--eagerness", "low"], "has no effect on the page"),
        (["--page", "--phone", "twilio"], "two ways to the server"),
        (["--browser", "chromium"], "add --page"),
        (["--page", "--browser", "/no/such/browser"], "there is no browser /no/such/browser"),
    ],
)
def test_invalid_options_are_rejected_with_a_message(arguments: list[str], message: str) -> None:
    code, output = report(*arguments)
    assert code == 1
    assert message in output
