"""GPUs as far as torch says, on a machine that has none."""

from __future__ import annotations

import pytest
import torch


def pretend_gpus(monkeypatch: pytest.MonkeyPatch, *capabilities: tuple[int, int], amd: bool = False) -> None:
    """A machine with a GPU of each compute capability; without one it has no GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(capabilities))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(capabilities))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capabilities[torch.device(device).index])
    monkeypatch.setattr(torch.version, "hip", "6.4" if amd else None)
