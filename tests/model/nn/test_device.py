"""Which device `--device` means, on machines with GPUs of all kinds, and what runs on it."""

from __future__ import annotations

import logging

import pytest
import torch
from torch.cuda._utils import _get_device_index

from model.engine.cuda_step import can_capture
from model.nn.attention import supports_attend_split
from model.nn.device import auto_device, find_device, is_ampere_or_newer
from model.nn.gpu.selection import gpu_operations
from server.serving.model_choice import _gpu, _on_gpu
from tests.model.nn.pretended_gpus import pretend_gpus

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
A100, H100, T4, MI300 = (8, 0), (9, 0), (7, 5), (9, 4)


@pytest.mark.parametrize(("name", "index"), [("auto", 0), ("cuda", 0), ("cuda:0", 0), ("cuda:1", 1)])
def test_a_cuda_device_can_be_made_the_current_one(name: str, index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """`torch.cuda.set_device` takes its index this way and refuses a device that has none."""
    pretend_gpus(monkeypatch, A100, A100)
    assert _get_device_index(find_device(name)) == index


@pytest.mark.parametrize("name", ["cuda:2", "cuda:x", "meta", "nonsense"])
def test_a_device_that_does_not_exist_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_gpus(monkeypatch, A100, A100)
    with pytest.raises(ValueError, match=r"choose|on this machine"):
        find_device(name)


def test_the_cpu_is_the_default_without_a_gpu(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pretend_gpus(monkeypatch)
    with caplog.at_level(logging.INFO):
        assert find_device("auto") == CPU
    assert not caplog.text
    with pytest.raises(ValueError, match="no CUDA device"):
        find_device("cuda")


@pytest.mark.parametrize(
    ("capabilities", "expected"), [((A100,), GPU), ((H100,), GPU), ((T4,), CPU), ((T4, H100), torch.device("cuda", 1))]
)
def test_auto_takes_the_first_gpu_from_ampere_on(
    capabilities: tuple[tuple[int, int], ...],
    expected: torch.device,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    pretend_gpus(monkeypatch, *capabilities)
    assert find_device("auto") == auto_device()[0] == _gpu("auto") == expected
    assert _on_gpu("auto") == (expected.type == "cuda") and _on_gpu("cuda") and not _on_gpu("cpu")
    assert ("has no bfloat16 (compute capability 8.0)" in caplog.text) == (expected == CPU)


def test_an_older_gpu_is_used_if_it_is_named(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    pretend_gpus(monkeypatch, T4)
    assert find_device("cuda") == GPU
    assert "cuda has no bfloat16: the language model runs in float32 and plain PyTorch" in caplog.text
    assert gpu_operations(GPU) is None and can_capture(GPU)
    monkeypatch.setenv("REJOINDER_CUDA_GRAPHS", "0")
    assert not can_capture(GPU)


def test_amds_gpu_is_used_only_if_it_is_named_and_runs_plain_pytorch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pretend_gpus(monkeypatch, MI300, amd=True)
    assert find_device("auto") == CPU and not _on_gpu("auto")
    assert "AMD's GPUs were never tried: --device cuda uses one, in plain PyTorch" in caplog.text
    caplog.clear()
    assert find_device("cuda") == GPU
    assert "runs in plain PyTorch, without CUDA graphs" in caplog.text
    assert not is_ampere_or_newer(GPU) and gpu_operations(GPU) is None
    assert not supports_attend_split(GPU, torch.bfloat16, 64) and not can_capture(GPU)


def test_apples_gpu_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match=r"Apple's GPUs \(mps\) are not supported: .* Choose cpu"):
        find_device("mps")
