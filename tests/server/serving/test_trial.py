"""Which model a server ends up with, and how many conversations it starts with."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from model.hub.catalog import QWEN_05B, QWEN_15B, ModelEntry
from model.hub.transfer import ModelUnavailable
from server.access.adaptive_limit import AdaptiveLimit
from server.access.admission import Admission
from server.serving import trial as trial_module
from server.serving.model_record import ModelHistory, ModelRecord, Trial
from server.serving.options import ModelOptions
from server.serving.trial import Candidate, ModelTrials, Start, repeat_when_idle
from tests.fakes import FakeLanguageModel, fake_speech_models, run_on_virtual_clock
from voice.trial import Latencies, TrialFailed, TrialInterrupted


class Engine:
    """Counts how many of it are loaded."""

    loaded = 0

    def __init__(self, name: str) -> None:
        Engine.loaded += 1
        assert Engine.loaded == 1, "two models are in memory"
        self.name = name

    def close(self) -> None:
        Engine.loaded -= 1


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path / "cache"))
    Engine.loaded = 0


def run_trials(
    monkeypatch: pytest.MonkeyPatch,
    record: ModelRecord,
    candidates: Sequence[ModelEntry],
    medians: dict[str, int],
    start: Start | None = None,
    others: float = 0.0,
    broken: frozenset[str] = frozenset(),
) -> tuple[str, list[str]]:
    """The model in the end, and those that were tried."""
    tried = []

    async def measure(new_language_model: Any, *_: object, is_interrupted: Any, **__: object) -> Latencies:
        name = new_language_model.args[0].name
        tried.append(name)
        if is_interrupted():
            raise TrialInterrupted
        if not medians:
            raise TrialFailed("out of memory")
        return Latencies((medians[name],), {2: medians[name], 4: 3 * medians[name]})

    monkeypatch.setattr(trial_module, "measure_latencies", measure)
    monkeypatch.setattr(trial_module.ProcessorUse, "share_of_others", lambda self, since: others)
    first = (candidates or [QWEN_15B])[0].name

    def load(options: ModelOptions) -> Any:
        if options.model in broken:
            raise ModelUnavailable(f"{options.model} cannot be downloaded")
        return Engine(options.model)

    trials = ModelTrials(record, 1000, candidates, load)
    loaded = Candidate(ModelOptions(model=first, device="cpu"), cast("Any", Engine(first)))
    result = trials.run(loaded, fake_speech_models(), start or Start())
    assert cast("Any", result.engine).name == result.options.model
    assert Engine.loaded == 1
    return result.options.model, tried


def test_the_largest_is_tried_first_and_taken_if_it_is_quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = ModelRecord(tmp_path, "a machine")
    both = [QWEN_15B, QWEN_05B]
    assert run_trials(monkeypatch, record, both, {QWEN_15B.name: 600}) == (QWEN_15B.name, [QWEN_15B.name])
    trial = record.histories()[QWEN_15B.name].trial
    assert trial is not None and (trial.median_ms, trial.conversations) == (600, 2)
    Engine.loaded = 0
    assert run_trials(monkeypatch, record, both, {}) == (QWEN_15B.name, [])  # known from now on


def test_one_that_is_too_slow_makes_room_for_a_smaller_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    medians = {QWEN_15B.name: 1900, QWEN_05B.name: 700}
    record = ModelRecord(tmp_path, "a machine")
    result = run_trials(monkeypatch, record, [QWEN_15B, QWEN_05B], medians)
    assert result == (QWEN_05B.name, [QWEN_15B.name, QWEN_05B.name])


def test_if_none_is_quick_the_quickest_is_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    medians = {QWEN_15B.name: 1900, QWEN_05B.name: 2100}
    record = ModelRecord(tmp_path, "a machine")
    result = run_trials(monkeypatch, record, [QWEN_15B, QWEN_05B], medians)
    assert result == (QWEN_15B.name, [QWEN_15B.name, QWEN_05B.name])


def test_it_ends_although_nothing_can_be_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    medians = {QWEN_15B.name: 1900, QWEN_05B.name: 700}
    record = ModelRecord(tmp_path / "file", "a machine")
    assert run_trials(monkeypatch, record, [QWEN_15B, QWEN_05B], medians)[0] == QWEN_05B.name


def test_a_visitor_interrupts_it_and_talks_to_the_model_that_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, record = Start(), ModelRecord(tmp_path, "a machine")

    async def measure(*_: object, is_interrupted: Any, **__: object) -> Latencies:
        start.visited.set()
        assert is_interrupted()
        raise TrialInterrupted

    def load(options: ModelOptions) -> Any:
        raise AssertionError("another one is loaded")

    monkeypatch.setattr(trial_module, "measure_latencies", measure)
    loaded = Candidate(ModelOptions(model=QWEN_15B.name, device="cpu"), cast("Any", Engine(QWEN_15B.name)))
    trials = ModelTrials(record, 1000, [QWEN_15B, QWEN_05B], load)
    assert trials.run(loaded, fake_speech_models(), start) is loaded
    assert trials.run(loaded, fake_speech_models(), start) is loaded  # and is not kept waiting by another server
    assert record.histories() == {}


def test_a_model_that_was_named_is_tried_once_for_the_number_of_conversations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = ModelRecord(tmp_path, "a machine")
    assert run_trials(monkeypatch, record, [], {QWEN_15B.name: 1900}) == (QWEN_15B.name, [QWEN_15B.name])
    Engine.loaded = 0
    assert run_trials(monkeypatch, record, [], {}) == (QWEN_15B.name, [])


def test_a_disturbed_trial_is_repeated_when_nobody_is_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, admission = ModelRecord(tmp_path, "a machine"), Admission(1, limit=AdaptiveLimit(1, 1, 1000))
    record.save_trial("tiny", Trial(1100, 1, others=0.6))
    begun = list[float]()

    async def measure(*_: object, is_interrupted: Any, **__: object) -> Latencies:
        begun.append(asyncio.get_running_loop().time())
        assert not is_interrupted()
        return Latencies((500,), {2: 800, 4: 1500})

    async def run() -> None:
        slot = admission.reserve("realtime")
        asyncio.get_running_loop().call_later(100, slot.release)
        await repeat_when_idle(record, "tiny", FakeLanguageModel, fake_speech_models(), admission, 1000)

    monkeypatch.setattr(trial_module, "measure_latencies", measure)
    monkeypatch.setattr(trial_module.ProcessorUse, "share_of_others", lambda self, since: 0.0)
    run_on_virtual_clock(run)
    assert begun == [155]
    assert record.histories() == {"tiny": ModelHistory(Trial(500, 2))}
    assert (admission.limit, admission.capacity) == (2, 2)


def test_with_other_processes_busy_a_slower_trial_is_accepted_and_kept_as_disturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, both = ModelRecord(tmp_path, "a machine"), [QWEN_15B, QWEN_05B]
    assert run_trials(monkeypatch, record, both, {QWEN_15B.name: 2000}, others=0.5)[0] == QWEN_15B.name
    assert record.histories()[QWEN_15B.name].trial == Trial(2000, 1, 0.5)
    other, medians = ModelRecord(tmp_path / "other", "a machine"), {QWEN_15B.name: 3000, QWEN_05B.name: 1000}
    Engine.loaded = 0
    assert run_trials(monkeypatch, other, both, medians, others=0.5)[0] == QWEN_05B.name
    Engine.loaded = 0
    medians = {QWEN_15B.name: 600}  # the next start, at which the processor is idle
    assert run_trials(monkeypatch, other, both, medians) == (QWEN_15B.name, [QWEN_15B.name])


def test_a_server_that_waited_for_the_trial_of_another_one_uses_what_that_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = ModelRecord(tmp_path, "a machine")
    record.save_trial(QWEN_15B.name, Trial(1900, 1))
    record.save_trial(QWEN_05B.name, Trial(700, 2))
    assert run_trials(monkeypatch, record, [QWEN_15B, QWEN_05B], {}) == (QWEN_05B.name, [])


def test_a_model_whose_responses_fail_is_neither_quick_nor_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    record = ModelRecord(tmp_path, "a machine")
    assert run_trials(monkeypatch, record, [QWEN_15B, QWEN_05B], {}) == (QWEN_15B.name, [QWEN_15B.name])
    assert record.histories() == {}
    assert "a response failed: out of memory" in caplog.text


def test_if_the_next_one_cannot_be_loaded_the_server_starts_with_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    record, broken = ModelRecord(tmp_path, "a machine"), frozenset({QWEN_05B.name})
    result = run_trials(monkeypatch, record, [QWEN_15B, QWEN_05B], {QWEN_15B.name: 1900}, broken=broken)
    assert result == (QWEN_15B.name, [QWEN_15B.name])
    assert "qwen2.5-coder-0.5b cannot be downloaded" in caplog.text


def test_a_disturbed_trial_is_repeated_at_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = ModelRecord(tmp_path, "a machine")
    record.save_trial(QWEN_15B.name, Trial(900, 1, others=0.6))
    assert run_trials(monkeypatch, record, [], {QWEN_15B.name: 600}) == (QWEN_15B.name, [QWEN_15B.name])
    assert record.histories()[QWEN_15B.name].trial == Trial(600, 2)
