"""Typed pointers for the kernels that the worker team calls: their arguments are addresses."""

from __future__ import annotations

from typing import Any, cast

from numba import types
from numba.extending import intrinsic


def _pointer(kind: Any) -> Any:
    """A function that makes a typed pointer of an address."""

    def typed(typing_context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return types.CPointer(kind)(types.int64), generate  # type: ignore[no-untyped-call]

    return cast(Any, intrinsic(typed))


floats, bools = _pointer(types.float32), _pointer(types.boolean)
integers, bytes_ = _pointer(types.int64), _pointer(types.int8)
short_integers = _pointer(types.int32)
