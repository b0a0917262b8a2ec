"""An adapter's low-rank deltas, compiled by Numba; `row_codegen.py` generates the other operations between the matrix
multiplications. A row's result does not depend on the rows next to it. The arrays must not overlap.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any, TypeVar, cast

import numpy as np
from numba import config, njit

from model.hub.store import cache_folder
from model.nn.cpu.block_formats import Floats, Indices, Signed

_log = logging.getLogger("rejoinder.model")

_Function = TypeVar("_Function", bound=Callable[..., None])

# Allows vectorized sums; infinities keep their IEEE behaviour.
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "nnan", "nsz", "arcp", "contract"},
}

_ARRAY_TYPES = {"F": "f4[{}::1]", "I": "i1[{}::1]", "P": "i8[{}::1]"}


def compiled(arguments: str) -> Callable[[_Function], _Function]:
    """Compile a kernel for contiguous arrays and cache it next to the models: compiling all takes some seconds.

    Args:
        arguments: the argument types. A letter and a digit is an array with that many dimensions of float32 (F), int8
            (I) or int64 (P).
    """
    kinds = [
        _ARRAY_TYPES[kind[0]].format(":," * (int(kind[1]) - 1)) if kind[0] in _ARRAY_TYPES else kind
        for kind in arguments.split()
    ]
    signature = f"void({', '.join(kinds)})"

    def compile_(function: _Function) -> _Function:
        return cast(_Function, _cached(lambda **options: njit(signature, **options)(function)))

    return compile_


def _cached(compile_: Callable[..., Any]) -> Any:
    default = config.CACHE_DIR  # type: ignore[attr-defined]
    config.CACHE_DIR = str(cache_folder() / "kernels")  # type: ignore[attr-defined]
    try:
        return compile_(cache=True, **_OPTIONS)
    except (OSError, EOFError, RuntimeError, UnpicklingError) as error:
        _log.warning("compiled kernels cannot be cached (%s): every start will take a few seconds longer", error)
        return compile_(**_OPTIONS)
    finally:
        config.CACHE_DIR = default  # type: ignore[attr-defined]


@compiled("F2 P1 I2 F1 I2 F1 P1 F2")
def add_low_rank(
    x: Floats,
    rows: Indices,
    a: Signed,
    a_scale: Floats,
    b: Signed,
    b_scale: Floats,
    ends: Indices,
    product: Floats,
) -> None:
    """product[row] += (x[row] Aᵀ) Bᵀ for some rows: adds an adapter's delta. Fused projections have their A's stacked,
    and each has its own B.

    Args:
        x: [all rows, in]; product: [all rows, out].
        a: [projections · rank, in], b: [rank, out] (the Bᵀ concatenated), from -127 to 127; a_scale, b_scale: their
            scales, [projections · rank], [out].
        ends: the end of each projection's outputs.
    """
    rank = b.shape[0]
    low = np.empty((len(rows), a.shape[0]), np.float32)
    for k in range(a.shape[0]):
        for n in range(len(rows)):
            dot, one, weights = np.float32(0), x[rows[n]], a[k]
            for i in range(len(one)):
                dot += one[i] * np.float32(weights[i])
            low[n, k] = dot * a_scale[k]
    mixed = np.empty(b.shape[1], np.float32)
    for n in range(len(rows)):
        mixed[:] = 0
        start = 0
        for part in range(len(ends)):
            out = mixed[start : ends[part]]
            for k in range(0, rank - 3, 4):
                l0, l1, l2, l3 = low[n, part * rank + k : part * rank + k + 4]
                b0, b1 = b[k, start : ends[part]], b[k + 1, start : ends[part]]
                b2, b3 = b[k + 2, start : ends[part]], b[k + 3, start : ends[part]]
                for i in range(len(out)):
                    out[i] += (l0 * np.float32(b0[i]) + l1 * np.float32(b1[i])) + (
                        l2 * np.float32(b2[i]) + l3 * np.float32(b3[i])
                    )
            for k in range(rank // 4 * 4, rank):
                one_low, weights = low[n, part * rank + k], b[k, start : ends[part]]
                for i in range(len(out)):
                    out[i] += one_low * np.float32(weights[i])
            start = ends[part]
        to = product[rows[n]]
        for i in range(len(mixed)):
            to[i] += mixed[i] * b_scale[i]
