"""`--model auto` on machines of all speeds, with faked measurements."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from model.hub import catalog
from model.hub.catalog import QWEN_05B, QWEN_15B, SMOLLM2, ModelEntry
from model.hub.store import ModelStore, ModelUnavailable
from server.serving.machine_speed import MachineSpeed
from server.serving.model_choice import TARGET_P95_MS, Verdict, judge_models, resolve_model
from server.serving.options import ModelOptions

QUICK = MachineSpeed("a quick processor", 60, 1500, 1500, 16 << 30)
SLOW = MachineSpeed("a slow processor", 25, 800, 800, 16 << 30)
VERY_SLOW = MachineSpeed("a very slow processor", 2, 40, 40, 16 << 30)
SMALL = MachineSpeed("a quick processor with little memory", 60, 1500, 1500, 2 << 30)
TINY = MachineSpeed("a quick processor with hardly any memory", 60, 1500, 1500, 1 << 29)
GPU = MachineSpeed("a GPU", 1500, 100_000, 900, 16 << 30, gpu=True)
SMALL_GPU = MachineSpeed("a GPU with little memory", 300, 20_000, 900, 4 << 30, gpu=True)


class Store(ModelStore):
    """A store in which some models are installed."""

    def __init__(self, folder: Path, *installed: ModelEntry) -> None:
        super().__init__(folder, hub=False)
        self._installed = installed

    def availability(self, model: ModelEntry) -> str:
        return "installed" if model in self._installed else "not installed"


def outcomes(speed: MachineSpeed, store: ModelStore) -> dict[str, str]:
    return {verdict.model.name: verdict.outcome for verdict in judge_models(speed, store)}


def chosen(speed: MachineSpeed, store: ModelStore) -> str:
    return resolve_model(ModelOptions(), store, lambda device: speed).model


@pytest.mark.parametrize(
    ("speed", "expected"),
    [
        (QUICK, QWEN_15B),
        (SLOW, QWEN_05B),
        (VERY_SLOW, QWEN_05B),
        (SMALL, QWEN_05B),
        (GPU, QWEN_15B),
        (SMALL_GPU, QWEN_05B),
    ],
)
def test_auto_is_the_largest_model_that_is_fast_enough_and_fits(
    tmp_path: Path, speed: MachineSpeed, expected: ModelEntry
) -> None:
    assert chosen(speed, Store(tmp_path, QWEN_05B, QWEN_15B)) == expected.name


def test_auto_chooses_among_installed_models(tmp_path: Path) -> None:
    assert chosen(QUICK, Store(tmp_path, SMOLLM2)) == SMOLLM2.name
    assert chosen(VERY_SLOW, Store(tmp_path, QWEN_15B)) == QWEN_15B.name


def test_without_an_installed_model_auto_names_the_one_to_install(tmp_path: Path) -> None:
    """Loading it then downloads it, or says how to install it."""
    assert chosen(QUICK, Store(tmp_path)) == QWEN_15B.name
    assert chosen(SLOW, Store(tmp_path)) == QWEN_05B.name


def test_a_machine_without_enough_memory_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match=r"no language model fits into this machine's memory.*--model"):
        chosen(TINY, Store(tmp_path, QWEN_05B, QWEN_15B))


def test_a_named_model_needs_no_measurement(tmp_path: Path) -> None:
    def measure(device: str) -> MachineSpeed:
        raise AssertionError("measured")

    options = ModelOptions(model="some/path.gguf")
    assert resolve_model(options, Store(tmp_path), measure) == options


def test_the_device_that_is_asked_for_is_measured(tmp_path: Path) -> None:
    measured = []

    def measure(device: str) -> MachineSpeed:
        measured.append(device)
        return QUICK

    resolve_model(ModelOptions(device="cuda:1"), Store(tmp_path), measure)
    assert measured == ["cuda:1"]


def test_every_model_gets_a_verdict(tmp_path: Path) -> None:
    names = [model.name for model in catalog.MODELS if model.kind == "language"]
    store = Store(tmp_path, QWEN_05B, QWEN_15B)
    assert outcomes(QUICK, store) == dict(zip(names, ("fits", "chosen", "absent"), strict=True))
    assert outcomes(SLOW, store) == dict(zip(names, ("chosen", "slow", "absent"), strict=True))
    assert outcomes(VERY_SLOW, store) == dict(zip(names, ("chosen", "slow", "absent"), strict=True))
    assert outcomes(SMALL, store) == dict(zip(names, ("chosen", "large", "absent"), strict=True))
    assert outcomes(GPU, store) == dict(zip(names, ("fits", "chosen", "absent"), strict=True))


def test_verdicts_are_readable(tmp_path: Path) -> None:
    assert str(Verdict(QWEN_05B, 740, "fits")) == "about 740 ms at p95"
    assert str(Verdict(QWEN_15B, 1310, "slow")) == "too slow here: about 1,310 ms at p95"
    assert 'pip install "rejoinder[' in str(Verdict(SMOLLM2, 600, "absent"))


def test_the_log_says_which_model_and_why(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(tmp_path, QWEN_05B, QWEN_15B)
    with caplog.at_level(logging.INFO, "rejoinder.models"):
        chosen(QUICK, store)
        chosen(SLOW, store)
        chosen(VERY_SLOW, store)
    quick, slow, very_slow = (record.getMessage() for record in caplog.records)
    assert QWEN_15B.name in quick and "largest installed model" in quick and QUICK.machine in quick
    assert QWEN_05B.name in slow and f"{QWEN_15B.name} is too slow here" in slow
    assert f"No installed model should answer within {TARGET_P95_MS:,} ms" in very_slow
