"""Counts torch's operations, each of which is a kernel on a GPU."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class CountedOperations(TorchDispatchMode):
    """Counts operations while it is entered. Views and new memory run nothing and are left out.

    Attributes:
        allocated: bytes of the new memory, by the identity of its storage.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self.allocated: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if "empty" in func.overloadpacket.__name__:
            self.allocated[storage_of(result)] = result.nbytes
        else:
            self.count += not func.is_view
        return result


def storage_of(tensor: Tensor) -> int:
    """The identity of a tensor's memory, also where it has no address."""
    return tensor.untyped_storage()._cdata
