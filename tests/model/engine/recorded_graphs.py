"""CUDA graphs on a CPU: operations are recorded while a function is "captured", and a replay runs the same ones on the
same memory. So whatever a captured function reads from the host, and memory that it does not keep in place, shows
up as a wrong result, as it would on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class RecordedGraph(TorchDispatchMode):
    """Stands for `torch.cuda.CUDAGraph`."""

    num_captured = num_replayed = 0

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Any, Any, Any, list[Tensor], list[bool]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        memory = {part.untyped_storage().data_ptr() for part in _tensors((args, kwargs))}
        outputs = _tensors(result)
        shared = [part.untyped_storage().data_ptr() in memory for part in outputs]
        if func._schema.is_mutable or not all(shared):
            self._calls.append((func, args, kwargs, outputs, shared))
        return result

    def replay(self) -> None:
        """Run the operations again, and put their results where they were."""
        RecordedGraph.num_replayed += 1
        for func, args, kwargs, outputs, shared in self._calls:
            for old, new, in_place in zip(outputs, _tensors(func(*args, **kwargs)), shared, strict=True):
                if not in_place:
                    old.copy_(new)

    def pool(self) -> str:
        """Memory is not shared."""
        return "pool"


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


@contextmanager
def _capture(graph: RecordedGraph, pool: object = None) -> Iterator[None]:
    RecordedGraph.num_captured += 1
    with graph:
        yield


@contextmanager
def _stream(stream: object) -> Iterator[None]:
    yield


def use_recorded_graphs(patch: pytest.MonkeyPatch) -> type[RecordedGraph]:
    """Capture on the CPU, too, until the patch ends. Returns the class that counts captures and replays."""
    stream = SimpleNamespace(wait_stream=lambda other: None)
    RecordedGraph.num_captured = RecordedGraph.num_replayed = 0
    for module in ("cuda_step", "cuda_graph"):
        patch.setattr(f"model.engine.{module}.can_capture", lambda device: True)
    for name, fake in (
        ("CUDAGraph", RecordedGraph), ("graph", _capture), ("stream", _stream), ("Stream", lambda: stream),
        ("current_stream", lambda: stream), ("synchronize", lambda: None),
    ):  # fmt: skip
        patch.setattr(torch.cuda, name, fake)
    return RecordedGraph
