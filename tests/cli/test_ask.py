"""`rejoinder ask` with fake models. `.ci/run` asks the real ones in writing, `tests/e2e/test_clients.py` by voice."""

from __future__ import annotations

import json
import time
import wave
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from cli import ask
from cli.main import app
from tests.fakes import FakeLanguageModel, fake_speech_models
from voice.audio.codec import OUTPUT_RATE
from voice.audio.wav import write_wav


@pytest.fixture(autouse=True)
def _fake_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "resolve_model", lambda options, data: options)
    monkeypatch.setattr(ask, "load_engine", lambda *_: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(ask, "load_speech_models", lambda *_: fake_speech_models())
    monkeypatch.setattr(ask, "Conversation", lambda engine, **_: FakeLanguageModel())


def rejoinder_ask(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, ["ask", *arguments])


def recording(folder: Path, loudness: Sequence[float]) -> str:
    """A recording of 2 s."""
    write_wav(folder / "question.wav", np.resize(np.array(loudness, np.float32), 2 * OUTPUT_RATE), OUTPUT_RATE)
    return str(folder / "question.wav")


def test_a_written_question_is_answered_in_json() -> None:
    done = rejoinder_ask("What is the capital of France?", "--json", "--no-builtin-tools")
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["question"] == "What is the capital of France?"
    assert result["answer"] == "The capital of France is Paris."
    assert (result["tools"], result["tokens"]) == ([], 6)


def test_a_spoken_question_is_printed_and_answered_aloud(tmp_path: Path) -> None:
    out = tmp_path / "response.wav"
    done = rejoinder_ask("--wav", recording(tmp_path, (0.5, -0.5)), "--out", str(out))
    assert done.exit_code == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["What is the capital of France?", "The capital of France is Paris."]
    with wave.open(str(out)) as file:
        assert (file.getframerate(), file.getnframes()) == (OUTPUT_RATE, 6 * OUTPUT_RATE // 10)


def test_an_empty_question_is_refused_before_anything_is_loaded() -> None:
    done = rejoinder_ask(" ")
    assert done.exit_code == 2 and "the question is empty" in done.stderr


def test_a_recording_without_speech_is_reported(tmp_path: Path) -> None:
    done = rejoinder_ask("--wav", recording(tmp_path, (0.0,)))
    assert done.exit_code == 1
    assert "no speech was found in" in done.stderr and "Traceback" not in done.stderr


def test_a_written_question_needs_no_speech_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask, "load_speech_models", lambda *_: pytest.fail("they are loaded"))
    done = rejoinder_ask("What is the capital of France?", "--no-builtin-tools")
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "The capital of France is Paris.\n"


def test_a_timer_is_announced_by_the_next_question_after_it_is_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    caller = FakeLanguageModel(calls=[("set_timer", '{"seconds": 0.2}')])
    monkeypatch.setattr(ask, "Conversation", lambda engine, **_: caller)
    done = rejoinder_ask("Set a timer.", "--data", str(tmp_path))
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == [
        "Your timer for less than a second is running.",
        "(It is announced by `rejoinder talk`, or by the next `rejoinder ask` once it is due.)",
    ]
    time.sleep(0.3)
    caller.calls = [("list_alarms", "{}")]
    done = rejoinder_ask("Which timers are set?", "--data", str(tmp_path))
    assert done.stdout.splitlines() == ["A timer is up.", "Your timer for less than a second is up."]
    caller.calls = []
    done = rejoinder_ask("What is the capital of France?", "--data", str(tmp_path), "--json")
    assert json.loads(done.stdout)["announced"] == []
