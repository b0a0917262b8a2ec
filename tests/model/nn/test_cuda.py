"""A CUDA device is asked whether it still works; a CPU always does."""

from __future__ import annotations

import pytest
import torch

from model.nn.cuda import device_failed

GPU = torch.device("cuda", 0)


def test_a_device_has_failed_if_it_cannot_be_synchronized(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: torch.device) -> None:
        raise torch.cuda.AcceleratorError("CUDA error: unspecified launch failure")

    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    assert not device_failed(GPU)
    monkeypatch.setattr(torch.cuda, "synchronize", fail)
    assert device_failed(GPU)
    assert not device_failed(torch.device("cpu"))
