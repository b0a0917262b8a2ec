"""What CUDA needs from a process: settings that are made once, whether a device still works after an error, and what
the error says in a line, and whether kernels compute what they should."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

_log = logging.getLogger("rejoinder.model")


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


def agrees(check: Callable[[], bool], otherwise: str, difference: str) -> bool:
    """Whether kernels compute here what they should. If not, a warning says what follows, and why.

    Args:
        check: compares them; fails if Triton, its compiler or the driver does.
        otherwise: what follows if they do not.
        difference: the reason if only their results are wrong.
    """
    try:
        if check():
            return True
        reason = difference
    except Exception as problem:
        reason = first_line(problem)
    _log.warning("%s: %s", otherwise, reason)
    return False
