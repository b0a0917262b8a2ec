"""Which device a name stands for (`--device`), and which GPUs run what was written for GPUs."""

from __future__ import annotations

import logging

import torch

_log = logging.getLogger("rejoinder.model")

_AMPERE = (8, 0)
"""Compute capability from which on a GPU computes in bfloat16."""

_CHOICES = "choose auto, cpu, cuda or cuda:N"


def is_amd() -> bool:
    """Whether torch was built for AMD's GPUs, which it calls `cuda`, too."""
    return torch.version.hip is not None


def is_ampere_or_newer(device: torch.device) -> bool:
    """Whether a device is an NVIDIA GPU with bfloat16, for which the kernels and the CUDA graphs were written."""
    return device.type == "cuda" and not is_amd() and torch.cuda.get_device_capability(device) >= _AMPERE


def auto_device() -> tuple[torch.device, str]:
    """The device of `auto`: the first NVIDIA GPU with bfloat16, or else the CPU; and why a GPU that torch sees is not
    used, if one is not."""
    cpu = torch.device("cpu")
    if not torch.cuda.is_available():
        return cpu, ""
    if is_amd():
        return cpu, "AMD's GPUs were never tried: --device cuda uses one, in plain PyTorch"
    gpus = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    usable = next((gpu for gpu in gpus if is_ampere_or_newer(gpu)), None)
    if usable is not None:
        return usable, ""
    return cpu, "it has no bfloat16 (compute capability 8.0): --device cuda uses it all the same, in float32"


def find_device(name: str) -> torch.device:
    """The device that a name stands for. A CUDA device has its index: `torch.cuda.set_device` refuses one without.

    Args:
        name: `auto` (`auto_device`), `cpu`, `cuda` or `cuda:N`.

    Raises:
        ValueError: there is no such device here, or it is not supported.
    """
    if name == "auto":
        found, reason = auto_device()
        if reason:
            _log.warning("the language model runs on the CPU and not on the GPU: %s", reason)
        return found
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"{name!r} is not a device: {_CHOICES}") from None
    if device.type == "cpu":
        return device
    if device.type == "mps":
        raise ValueError(
            "Apple's GPUs (mps) are not supported: nothing here was tried on one. Choose cpu, which reads weights of 4 "
            "to 8 bits"
        )
    if device.type != "cuda":
        raise ValueError(f"{name!r} is not supported: {_CHOICES}")
    if not torch.cuda.is_available():
        raise ValueError("there is no CUDA device on this machine (or torch was installed for the CPU): choose cpu")
    index = device.index or 0
    if index >= torch.cuda.device_count():
        raise ValueError(f"there is no {name} on this machine: it has {torch.cuda.device_count()} CUDA devices")
    device = torch.device("cuda", index)
    if is_amd():
        _log.warning("AMD's GPUs were never tried: the language model runs in plain PyTorch, without CUDA graphs")
    elif not is_ampere_or_newer(device):
        _log.warning("%s has no bfloat16: the language model runs in float32 and plain PyTorch", name)
    return device
