"""What is kept of trials and turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.serving.model_record import ENOUGH_TURNS, ModelHistory, ModelRecord, Trial


def test_trials_and_turns_of_each_model_and_machine_are_kept(tmp_path: Path) -> None:
    record, other = ModelRecord(tmp_path, "a machine"), ModelRecord(tmp_path, "another")
    record.save_trial("small", Trial(400, 2))
    other.save_trial("small", Trial(900, 1, others=0.5))
    for latency in range(ENOUGH_TURNS + 50):
        record.add_turn("small", latency)
    record.save()
    history = ModelRecord(tmp_path, "a machine").histories()["small"]
    assert history.trial == Trial(400, 2)
    assert history.turns_tell and len(history.turns_ms) == ENOUGH_TURNS
    assert (history.turn_percentile(0.5), history.turn_percentile(0.95)) == (150, 239)
    assert other.histories() == {"small": ModelHistory(Trial(900, 1, others=0.5))}


def test_a_new_trial_forgets_the_turns_before_it(tmp_path: Path) -> None:
    record = ModelRecord(tmp_path, "a machine")
    for name in ("large", "small"):
        record.add_turn(name, 500)
    record.save()
    record.add_turn("large", 500)
    record.save_trial("large", Trial(700, 1), reconsider=("small",))
    assert {name: one.turns_ms for name, one in record.histories().items()} == {"large": (), "small": ()}


def test_a_damaged_file_is_as_good_as_missing_and_one_that_cannot_be_written_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "models.json").write_text("{")
    record = ModelRecord(tmp_path, "a machine")
    assert record.histories() == {}
    record.save_trial("small", Trial(400, 2))
    assert record.histories()["small"].trial == Trial(400, 2)
    (tmp_path / "file").write_text("")
    ModelRecord(tmp_path / "file", "a machine").save_trial("small", Trial(400, 2))
    assert "could not be saved" in caplog.text
