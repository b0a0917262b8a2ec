"""A function of fixed shapes as a CUDA graph. Where it is not captured it is called instead of replayed."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any

import torch

from model.nn.cuda import first_line
from model.nn.device import is_amd

_log = logging.getLogger("rejoinder.model")

_WARM_UP_RUNS = 2
"""Calls before capturing, in which libraries choose their kernels and allocate workspaces, which a capture cannot."""


def can_capture(device: torch.device) -> bool:
    """Whether functions on a device are captured: not with `REJOINDER_CUDA_GRAPHS=0`. AMD's graphs were never tried."""
    return device.type == "cuda" and not is_amd() and os.environ.get("REJOINDER_CUDA_GRAPHS") != "0"


def all_captured(capture: Callable[[], object]) -> bool:
    """Whether a call captures its functions. If it fails, a warning says why; those that have no graph are called.

    Raises:
        OutOfMemoryError: there is too little memory, which calls would need, too.
    """
    try:
        capture()
    except torch.OutOfMemoryError:
        raise
    except Exception as problem:  # of Triton, its compiler or the driver
        _log.warning("steps cannot be captured here, so each starts hundreds of kernels: %s", first_line(problem))
        return False
    return True


class CapturedFunction:
    """Runs a function that reads and writes the same tensors each time and never waits for the host.

    Args:
        function: may be called on any device.
        device: where its tensors are.
    """

    def __init__(self, function: Callable[[], None], device: torch.device) -> None:
        self._function, self._on_gpu = function, can_capture(device)
        self._graph: torch.cuda.CUDAGraph | None = None

    @torch.inference_mode()
    def capture(self, pool: Any = None) -> Any:
        """Capture the function, unless that was done. This runs it.

        Args:
            pool: memory that graphs share, which are not replayed at the same time; None for new memory.

        Returns:
            The pool, None without a GPU.
        """
        if not self._on_gpu:
            return None
        if self._graph is None:
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(_WARM_UP_RUNS):
                    self._function()
            torch.cuda.current_stream().wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                self._function()
            self._graph = graph
        return self._graph.pool()

    @torch.inference_mode()
    def __call__(self) -> None:
        """Run it. On a GPU it has not ended when this returns."""
        if self._graph is None:
            self._function()
        else:
            self._graph.replay()
