"""The operations between the matrix multiplications of a forward pass with block-quantized weights, compiled by Numba.

A one-row forward pass of a small model has about 1,500 operations on a few hundred numbers each, where torch's overhead
exceeds the arithmetic. Here they are a handful of kernels. Each works row by row and always in the same order, so a
row's result is bit-identical whatever else is in the batch: drafts can share a forward pass with the text they are
verified against. This requires arrays that do not overlap; callers ensure it.

Activations are quantized to int8 in blocks of 32, each with its own scale and sums (`linear.QuantizedActivations`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any, TypeVar, cast

import numpy as np
from numba import carray, cfunc, config, njit, types  # type: ignore[attr-defined]
from numba.extending import intrinsic
from numpy.typing import NDArray

from model.hub.store import cache_folder
from model.nn.cpu.pointers import bytes_, floats, integers, short_integers

_log = logging.getLogger("rejoinder.model")

Floats = NDArray[np.float32]
Signed = NDArray[np.int8]
Integers = NDArray[np.int32]
Bools = NDArray[np.bool_]
Indices = NDArray[np.int64]

_Function = TypeVar("_Function", bound=Callable[..., None])

# Allows vectorized sums; infinities keep their IEEE behaviour.
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "nnan", "nsz", "arcp", "contract"},
}

_ARRAY_TYPES = {"F": "f4[{}::1]", "I": "i1[{}::1]", "S": "i4[{}::1]", "B": "b1[{}::1]", "P": "i8[{}::1]"}


def compiled(arguments: str) -> Callable[[_Function], _Function]:
    """Compile a kernel for contiguous arrays and cache it next to the models: compiling all takes some seconds.

    Args:
        arguments: the argument types. A letter and a digit is an array with that many dimensions of float32 (F), int8
            (I), int32 (S), bool (B) or int64 (P); f4 and i8 are numbers.
    """
    kinds = [
        _ARRAY_TYPES[kind[0]].format(":," * (int(kind[1]) - 1)) if kind[0] in _ARRAY_TYPES else kind
        for kind in arguments.split()
    ]
    signature = f"void({', '.join(kinds)})"

    def compile_(function: _Function) -> _Function:
        return cast(_Function, _cached(lambda **options: njit(signature, **options)(function)))

    return compile_


def compiled_for_team(function: _Function) -> _Function:
    """Compile a kernel that the worker team calls, `kernel(segment, call, begin, end)` of int64 (`codegen.CALL`). Its
    `address` is the machine code's."""
    return cast(_Function, _cached(lambda **options: cfunc("void(i8, i8, i8, i8)", **options)(function)))


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


_ONE, _HALF = np.float32(1), np.float32(0.5)
_MAX_LEVEL, _MIN_LARGEST = np.float32(127), np.float32(1e-12)
_SHIFT = np.float32(128.5)
"""Added before the fraction is dropped, which rounds to the nearest integer above -128."""
_LOG2_E = np.float32(1.4426950408889634)
_MAX_EXPONENT = np.float32(87)
"""e^±87 is a normal float32."""

_C1, _C2, _C3 = np.float32(0.6931471805599453), np.float32(0.24022650695910072), np.float32(0.05550410866482158)
_C4, _C5, _C6 = np.float32(0.009618129107628477), np.float32(0.0013333558146428443), np.float32(0.00015403530393381608)
"""ln(2)ⁿ / n!: coefficients of the series of 2^f, whose remainder is 1.2e-7 for |f| ≤ ½."""


def _bits(typing_context: Any, bits: Any) -> Any:
    """The float32 with the bits of an int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.int32), generate


_as_float = cast("Callable[[np.int32], np.float32]", intrinsic(_bits))


@njit(inline="always")
def exp(x: np.float32) -> np.float32:
    """e^x for |x| up to 87, with a relative error of 4e-6 (4e-7 up to 5), in a form that the compiler can vectorize."""
    power = min(max(x, -_MAX_EXPONENT), _MAX_EXPONENT) * _LOG2_E
    whole = np.floor(power + _HALF)
    f = power - whole
    series = _ONE + f * (_C1 + f * (_C2 + f * (_C3 + f * (_C4 + f * (_C5 + f * _C6)))))
    value: np.float32 = series * _as_float((np.int32(whole) + np.int32(127)) << np.int32(23))
    return value


@njit(inline="always")
def _quantize_row(x: Floats, row: int, levels: Signed, scale: Floats, minimum: Floats, sums: Integers) -> None:
    """Quantize one row in blocks of 32; the last block may be shorter. Loops of a fixed length are vectorized."""
    whole = len(x) // 32
    for block in range(whole):
        start, top, to = 32 * block, _MIN_LARGEST, levels[block, row]
        for i in range(32):
            value = abs(x[start + i])
            top = value if value > top else top
        by, first, second = _MAX_LEVEL / top, np.int32(0), np.int32(0)
        for i in range(32):
            to[i] = np.int8(np.int32(x[start + i] * by + _SHIFT) - np.int32(128))
        for i in range(16):
            first += np.int32(to[i])
        for i in range(16):
            second += np.int32(to[16 + i])
        _describe_block(top / _MAX_LEVEL, first, second, scale, minimum, sums[block, row], block, row)
    for block in range(whole, len(scale)):
        start, top, first, second = 32 * block, _MIN_LARGEST, np.int32(0), np.int32(0)
        for i in range(start, len(x)):
            top = max(top, abs(x[i]))
        by = _MAX_LEVEL / top
        for i in range(start, len(x)):
            level = np.int32(x[i] * by + _SHIFT) - np.int32(128)
            levels[block, row, i - start] = np.int8(level)
            if i < start + 16:
                first += level
            else:
                second += level
        _describe_block(top / _MAX_LEVEL, first, second, scale, minimum, sums[block, row], block, row)


@njit(inline="always")
def _describe_block(
    size: np.float32,
    first: np.int32,
    second: np.int32,
    scale: Floats,
    minimum: Floats,
    sums: Integers,
    block: int,
    row: int,
) -> None:
    """Record the scale of a block and the sums of its halves."""
    scale[block, row], minimum[block, row] = size, -size * np.float32(first + second)
    sums[0], sums[1], sums[2] = -(first + second), -first, -second


@njit(inline="always")
def _quantized(f: Indices, at: int, rows: int, blocks: int) -> tuple[Signed, Floats, Floats, Integers]:
    """The arrays of `linear.QuantizedActivations`, whose addresses are fields from `at` on."""
    shape = (blocks, rows)
    scale, minimum = carray(floats(f[at + 1]), shape), carray(floats(f[at + 2]), shape)
    return (
        carray(bytes_(f[at]), (blocks, rows, 32)), scale, minimum,
        carray(short_integers(f[at + 3]), (blocks, rows, 3)),
    )  # fmt: skip


QUANTIZE = ("x", "levels", "scale", "minimum", "sums", "rows", "size", "blocks")


@compiled_for_team
def quantize(segment: int, call: int, begin: int, end: int) -> None:
    """Quantize x [rows, size] float32 to the arrays of `linear.QuantizedActivations`."""
    f = carray(integers(call), 8)
    rows, size = f[5], f[6]
    x = carray(floats(f[0]), (rows, size))
    levels, scale, minimum, sums = _quantized(f, 1, rows, f[7])
    for row in range(begin, end):
        _quantize_row(x[row], row, levels, scale, minimum, sums)


NORMALIZE = (
    "x", "product", "bias", "weight", "normal", "levels", "scale", "minimum", "sums", "rows", "size", "blocks", "eps",
)  # fmt: skip
"""`eps` is the address of a float32."""


@compiled_for_team
def add_and_normalize(segment: int, call: int, begin: int, end: int) -> None:
    """x += product + bias, then RMS-normalize x and quantize the result. x, product, normal: [rows, size]; bias,
    weight: [size]; the others as in `quantize`."""
    f = carray(integers(call), 13)
    rows, n = f[9], f[10]
    x, product = carray(floats(f[0]), (rows, n)), carray(floats(f[1]), (rows, n))
    bias, weight, eps = carray(floats(f[2]), (n,)), carray(floats(f[3]), (n,)), carray(floats(f[12]), (1,))[0]
    normal = carray(floats(f[4]), (rows, n))
    levels, scale, minimum, sums = _quantized(f, 5, rows, f[11])
    for row in range(begin, end):
        squares = np.float32(0)
        for i in range(n):
            value = x[row, i] + (product[row, i] + bias[i])
            x[row, i] = value
            squares += value * value
        by = _ONE / np.sqrt(squares / np.float32(n) + eps)
        for i in range(n):
            normal[row, i] = x[row, i] * by * weight[i]
        _quantize_row(normal[row], row, levels, scale, minimum, sums)


SWIGLU = ("product", "bias", "inner", "levels", "scale", "minimum", "sums", "rows", "size", "blocks")


@compiled_for_team
def swiglu(segment: int, call: int, begin: int, end: int) -> None:
    """SwiGLU: `inner` = silu(first half) · second half of product + bias, and quantize it. product: [rows, 2 · size];
    bias: [2 · size]; inner: [rows, size]; the others as in `quantize`."""
    f = carray(integers(call), 10)
    rows, n = f[7], f[8]
    product, bias = carray(floats(f[0]), (rows, 2 * n)), carray(floats(f[1]), (2 * n,))
    inner = carray(floats(f[2]), (rows, n))
    levels, scale, minimum, sums = _quantized(f, 3, rows, f[9])
    for row in range(begin, end):
        half, up, out = product[row, :n], product[row, n:], inner[row]
        for i in range(n):
            value = half[i] + bias[i]
            out[i] = value / (_ONE + exp(-value)) * (up[i] + bias[n + i])
        _quantize_row(out, row, levels, scale, minimum, sums)


SPLIT = (
    "product", "bias", "norm", "cos", "sin", "query_scale", "query", "keys", "values",
    "rows", "heads", "kv_heads", "size", "capacity", "past", "normalized", "eps",
)  # fmt: skip
"""`normalized` is 1 if heads are normalized, otherwise 0; `eps` is the address of a float32."""


@compiled_for_team
def split_heads(segment: int, call: int, begin: int, end: int) -> None:
    """Split product + bias into queries, keys and values. Queries and keys are rotated by the angles of their
    positions; keys and values are written after the `past` ones in the cache. `size` is that of a head.

    product: [rows, (heads + 2 kv_heads) · size]; query_scale: [rows]; bias: one row's size; norm: [heads + kv_heads,
    size], weights of the heads' RMS normalization; cos, sin: [rows, size], the first half of `sin` negated; query:
    [rows, heads, size]; keys, values: [kv_heads, capacity, size].
    """
    f = carray(integers(call), 17)
    rows, heads, kv_heads, size, capacity, past = f[9], f[10], f[11], f[12], f[13], f[14]
    width, half = (heads + 2 * kv_heads) * size, size // 2
    product, bias = carray(floats(f[0]), (rows, width)), carray(floats(f[1]), (width,))
    norm, eps = carray(floats(f[2]), (heads + kv_heads, size)), carray(floats(f[16]), (1,))[0]
    cos, sin = carray(floats(f[3]), (rows, size)), carray(floats(f[4]), (rows, size))
    query_scale, query = carray(floats(f[5]), (rows,)), carray(floats(f[6]), (rows, heads, size))
    keys, values = carray(floats(f[7]), (kv_heads, capacity, size)), carray(floats(f[8]), (kv_heads, capacity, size))
    head = np.empty(size, np.float32)
    for row in range(begin, end):
        for n in range(heads + kv_heads):
            squares = np.float32(0)
            for i in range(size):
                value = product[row, n * size + i] + bias[n * size + i]
                head[i] = value
                squares += value * value
            if f[15]:
                by_head = _ONE / np.sqrt(squares / np.float32(size) + eps)
                for i in range(size):
                    head[i] = head[i] * by_head * norm[n, i]
            to = query[row, n] if n < heads else keys[n - heads, past + row]
            factor = query_scale[row] if n < heads else _ONE
            for i in range(half):
                low, high = head[i], head[half + i]
                to[i] = (low * cos[row, i] + high * sin[row, i]) * factor
                to[half + i] = (high * cos[row, half + i] + low * sin[row, half + i]) * factor
        for n in range(kv_heads):
            start = (heads + kv_heads + n) * size
            for i in range(size):
                values[n, past + row, i] = product[row, start + i] + bias[start + i]


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
