"""What CUDA needs from a process: settings that are made once, whether a device still works after an error, and what
the error says in a line."""

from __future__ import annotations

import torch


def configure_cuda() -> None:
    """Turn off cuDNN's attention for this process.

    torch prefers it on Hopper GPUs, but it builds a plan for every new length, which takes about half a second, and the
    length is new in every forward pass that is not a captured one (transformers pull request 48163, FunASR issue 3704).
    """
    torch.backends.cuda.enable_cudnn_sdp(False)


def device_failed(device: torch.device) -> bool:
    """Whether a CUDA device no longer works in this process. After an error inside a kernel every later call fails.

    The device is asked, because such errors arrive as exceptions of torch, Triton and cuBLAS, some of which are
    harmless. A CPU never fails.
    """
    if device.type != "cuda":
        return False
    try:
        torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False


def first_line(problem: Exception) -> str:
    """What an exception says, or its name. Those of Triton and of the driver have many lines."""
    return (str(problem).splitlines() or [type(problem).__name__])[0]
