"""`--model auto`: by what trials and turns have shown."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from model.hub.catalog import QWEN_05B, QWEN_15B, SMOLLM2, ModelEntry
from model.hub.download import HubModel
from model.hub.selection import HubFile
from model.hub.store import ModelStore
from model.hub.transfer import ModelUnavailable
from server.serving import general_models, model_choice
from server.serving.model_choice import (
    PATIENT_MS,
    QUICK_MS,
    choose,
    find_candidates,
    limit_ms,
    open_record,
    resolve_model,
    verdicts,
    wrong_often,
)
from server.serving.model_record import ENOUGH_TURNS, ModelHistory, Trial
from server.serving.options import ModelOptions

BIG = ModelEntry("big", "language", "", "", "", QWEN_15B.files * 3, "", rating=95)
BOTH, THREE = [QWEN_15B, QWEN_05B], [BIG, QWEN_15B, QWEN_05B]


class Store(ModelStore):
    """A store in which some models are installed."""

    def __init__(self, folder: Path, *installed: ModelEntry) -> None:
        super().__init__(folder, hub=False)
        self._installed = installed

    def availability(self, model: ModelEntry) -> str:
        return "installed" if model in self._installed else "not installed"


def tried(**medians: int) -> dict[str, ModelHistory]:
    names = {"big": BIG, "large": QWEN_15B, "small": QWEN_05B}
    return {names[name].name: ModelHistory(Trial(median, 1)) for name, median in medians.items()}


def turns(median: int, trial: int | None = None) -> ModelHistory:
    return ModelHistory(None if trial is None else Trial(trial, 1), (median,) * ENOUGH_TURNS)


@pytest.mark.parametrize(
    ("candidates", "histories", "model", "known"),
    [
        (BOTH, {}, QWEN_15B, False),
        (BOTH, tried(large=640), QWEN_15B, True),
        (BOTH, tried(large=QUICK_MS + 1), QWEN_15B, True),  # the small one is rated much lower
        (BOTH, tried(large=PATIENT_MS), QWEN_15B, True),
        (BOTH, tried(large=PATIENT_MS + 1), QWEN_05B, False),
        (BOTH, tried(large=1500, small=600), QWEN_05B, True),
        (BOTH, tried(large=4000, small=1900), QWEN_05B, True),  # none is quick: the quickest
        ([QWEN_15B], tried(large=4000), QWEN_15B, True),
        (THREE, tried(big=QUICK_MS + 1), QWEN_15B, False),  # nearly as good, and perhaps quick
        (THREE, tried(big=QUICK_MS + 1, large=700), QWEN_15B, True),
        (THREE, tried(big=1100, large=1300, small=500), BIG, True),  # the only quick one is rated much lower
        (THREE, tried(big=1500, large=1300, small=500), QWEN_05B, True),
        (THREE, tried(big=900, large=900, small=500), BIG, True),  # none of the good ones is quick: the best
    ],
)
def test_it_is_the_largest_that_is_quick_or_a_much_better_one_up_to_a_higher_limit(
    candidates: list[ModelEntry], histories: Mapping[str, ModelHistory], model: ModelEntry, known: bool
) -> None:
    choice = choose(candidates, histories)
    assert (choice.model, choice.known) == (model, known)


def test_turns_move_it_down_and_the_reason_says_so() -> None:
    histories = {QWEN_15B.name: turns(1300, trial=700), **tried(small=600)}
    choice = choose(BOTH, histories)
    assert choice.model == QWEN_05B and choice.known
    assert f"{QWEN_15B.name}: median 1,300 ms and p95 1,300 ms in its last 200 turns" in choice.reason
    assert choose(BOTH, {QWEN_15B.name: turns(700, trial=1300)}).model == QWEN_15B


def test_a_machine_that_has_become_faster_tries_a_larger_model_again() -> None:
    slow = tried(large=1500)
    assert choose(BOTH, {**slow, QWEN_05B.name: turns(590, trial=600)}).model == QWEN_05B
    again = choose(BOTH, {**slow, QWEN_05B.name: turns(400, trial=600)})
    assert (again.model, again.known) == (QWEN_15B, False)
    own_turns = {QWEN_15B.name: turns(1500, trial=700)}
    assert choose(BOTH, {**own_turns, QWEN_05B.name: turns(590, trial=600)}).model == QWEN_05B
    assert not choose(BOTH, {**own_turns, QWEN_05B.name: turns(400, trial=600)}).known


def test_a_disturbed_trial_counts_only_if_the_model_was_quick_enough_all_the_same() -> None:
    busy = {QWEN_15B.name: ModelHistory(Trial(2500, 1, others=0.5)), **tried(small=500)}
    assert (choose(BOTH, busy).model, choose(BOTH, busy).known) == (QWEN_15B, False)
    assert choose(BOTH, {QWEN_15B.name: ModelHistory(Trial(2300, 1, others=0.5))}).known


def test_a_model_is_taken_up_to_the_higher_limit_only_if_all_smaller_ones_are_rated_much_lower() -> None:
    assert limit_ms(QWEN_15B, THREE) == PATIENT_MS
    assert limit_ms(BIG, THREE) == QUICK_MS
    assert limit_ms(QWEN_05B, THREE) == PATIENT_MS


def test_installed_models_that_fit_into_the_memory_are_candidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path, QWEN_05B, QWEN_15B)
    monkeypatch.setattr(model_choice, "physical_memory", lambda: 8 << 30)
    assert find_candidates("cpu", store) == BOTH
    assert find_candidates("cpu", Store(tmp_path))[0] == QWEN_15B  # loading it says how to install it
    monkeypatch.setattr(model_choice, "physical_memory", lambda: 2 << 30)
    assert find_candidates("cpu", store) == [QWEN_05B]
    monkeypatch.setattr(model_choice, "physical_memory", lambda: 1 << 29)
    with pytest.raises(ModelUnavailable, match=r"no language model fits into this machine's memory.*--model"):
        find_candidates("cpu", store)


def test_a_general_model_that_was_pulled_comes_before_the_bundled_coder_of_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pulled(repository: str, size: int) -> HubModel:
        return HubModel(repository, repository, "c", "mit", "m.gguf", (HubFile("m.gguf", size, "d"),))

    same, large = pulled("Qwen/Qwen2.5-1.5B-Instruct-GGUF", QWEN_15B.size - 32), pulled("Qwen/Qwen3-8B-GGUF", 5 << 30)
    unknown, begun = pulled("org/unknown", 2 << 30), pulled("unsloth/Qwen3-1.7B-GGUF", 1 << 30)
    hub = SimpleNamespace(recorded=lambda: [unknown, begun, same, large], is_complete=lambda one: one != begun)
    monkeypatch.setattr(general_models, "hub_models", lambda: hub)
    monkeypatch.setattr(model_choice, "physical_memory", lambda: 6 << 30)
    candidates = find_candidates("cpu", Store(tmp_path, QWEN_05B, QWEN_15B))
    assert [one.name for one in candidates] == [same.name, QWEN_15B.name, QWEN_05B.name]
    assert wrong_often(candidates[0]) == ""
    quick, slow = (
        {same.name: ModelHistory(Trial(ms, 1)), QWEN_15B.name: ModelHistory(Trial(500, 1))}
        for ms in (QUICK_MS, QUICK_MS + 1)
    )
    assert choose(candidates, quick).model.name == same.name
    assert choose(candidates, slow).model == QWEN_15B
    monkeypatch.setattr(model_choice, "physical_memory", lambda: 16 << 30)
    assert find_candidates("cpu", Store(tmp_path))[0].name == large.name  # no other model is installed


def test_commands_without_a_server_go_by_what_is_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_choice, "ModelStore", lambda: Store(tmp_path, QWEN_05B, QWEN_15B))
    named = ModelOptions(model="some/path.gguf", device="cpu")
    auto = ModelOptions(device="cpu")
    assert resolve_model(named, tmp_path) == named
    with caplog.at_level(logging.INFO, "rejoinder.models"):
        assert resolve_model(auto, tmp_path).model == QWEN_15B.name
        record = open_record("cpu", tmp_path)
        record.save_trial(QWEN_15B.name, Trial(1900, 1))
        record.save_trial(QWEN_05B.name, Trial(900, 1))
        assert resolve_model(auto, tmp_path).model == QWEN_05B.name
    assert "--model auto is qwen2.5-coder-0.5b: median 900 ms in its trial" in caplog.text
    assert "the answers of qwen2.5-coder-0.5b are often wrong (61 % of questions right)" in caplog.text


def test_the_list_says_what_is_known_of_each_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_choice, "physical_memory", lambda: 8 << 30)
    open_record(data=tmp_path).save_trial(QWEN_15B.name, Trial(640, 2))
    remarks = verdicts(Store(tmp_path, QWEN_05B, QWEN_15B), tmp_path)
    assert remarks[QWEN_15B.name] == "chosen by auto: median 640 ms in its trial"
    assert remarks[QWEN_05B.name].startswith("not tried yet; often wrong")
    assert remarks[SMOLLM2.name].startswith("rejoinder models pull smollm2-135m; often")
    assert wrong_often(QWEN_15B) == ""
