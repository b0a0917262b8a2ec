"""The JSON file of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lab.report.run import BadReport, read_run
from tests.lab.report.samples import MEASUREMENTS, SPOKEN_BY_TWO, run_of


def test_a_run_survives_writing_and_reading(tmp_path: Path) -> None:
    run = run_of(MEASUREMENTS)
    run.write(tmp_path / "run.json")
    assert read_run(tmp_path / "run.json") == run
    payload = json.loads((tmp_path / "run.json").read_text())
    assert payload["turns"] == 6 and len(payload["measurements"]) == 6 and payload["machine"]["cores"] == 2


def test_the_file_of_a_run_has_the_figures_of_each_voice(tmp_path: Path) -> None:
    run = run_of(SPOKEN_BY_TWO)
    run.write(tmp_path / "run.json")
    assert read_run(tmp_path / "run.json") == run
    by_voice = json.loads((tmp_path / "run.json").read_text())["by_voice"]
    assert {voice: metrics["turns"] for voice, metrics in by_voice.items()} == {
        "en_US-joe-medium": 3,
        "kokoro:bf_emma": 3,
    }


def test_the_file_of_a_run_has_the_figures_of_each_corpus(tmp_path: Path) -> None:
    run = run_of([replace(turn, corpus="held-out" if n else "built-in") for n, turn in enumerate(MEASUREMENTS)])
    run.write(tmp_path / "run.json")
    assert read_run(tmp_path / "run.json") == run
    by_corpus = json.loads((tmp_path / "run.json").read_text())["by_corpus"]
    assert {corpus: metrics["turns"] for corpus, metrics in by_corpus.items()} == {"built-in": 1, "held-out": 5}


def test_a_file_that_is_not_a_report_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(BadReport, match="is not a report"):
        read_run(tmp_path / "x.json")
    with pytest.raises(BadReport, match="there is no report"):
        read_run(tmp_path / "y.json")
