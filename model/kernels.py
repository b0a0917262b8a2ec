"""The small work between the products of an int8 pass, compiled by Numba for the processor it runs on.

A pass with one row of a small model is some 1,500 operations on a few hundred numbers each, which cost torch more time
than the numbers do. Here they are a handful. Each works row by row and always in the same order, so that a row comes
out the same to the last bit whatever rows are beside it: several drafts can share a pass with the text that they are
checked against. That rests on arrays that do not overlap, which callers see to.

Levels are activations as unsigned bytes around 128, with one scale a row: their largest magnitude.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any, TypeVar, cast

import numpy as np
from numba import config, njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from model.store import cache_folder

_log = logging.getLogger("rejoinder.model")

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Signed = NDArray[np.int8]
Bools = NDArray[np.bool_]
Places = NDArray[np.int64]

_Function = TypeVar("_Function", bound=Callable[..., None])

# Sums may be taken several numbers at a time; nothing is assumed of infinities.
_HOW: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    "fastmath": {"reassoc", "nnan", "nsz", "arcp", "contract"},
}

_SHORT = {"F": "f4[{}::1]", "I": "i1[{}::1]", "U": "u1[{}::1]", "B": "b1[{}::1]", "P": "i8[{}::1]"}


def _compiled(arguments: str) -> Callable[[_Function], _Function]:
    """Compile a kernel for arrays that lie without gaps, and keep it with the models: compiling all takes some seconds.

    Args:
        arguments: their types. A letter and a number is an array of so many dimensions of float32 (F), int8 (I), uint8
            (U), bool (B) or int64 (P); f4 and i8 are numbers.
    """
    kinds = [
        _SHORT[said[0]].format(":," * (int(said[1]) - 1)) if said[0] in _SHORT else said for said in arguments.split()
    ]
    signature = f"void({', '.join(kinds)})"

    def compile_(function: _Function) -> _Function:
        usual = config.CACHE_DIR  # type: ignore[attr-defined]
        config.CACHE_DIR = str(cache_folder() / "kernels")  # type: ignore[attr-defined]
        try:
            return cast(_Function, njit(signature, cache=True, **_HOW)(function))
        except (OSError, EOFError, RuntimeError, UnpicklingError) as error:
            _log.warning("compiled kernels cannot be kept (%s): every start will take some seconds more", error)
            return cast(_Function, njit(signature, **_HOW)(function))
        finally:
            config.CACHE_DIR = usual  # type: ignore[attr-defined]

    return compile_


_ONE, _HALF = np.float32(1), np.float32(0.5)
_LEVELS, _ROUNDING, _LEAST = np.float32(127), np.float32(128.5), np.float32(1e-12)
_LOG2_E = np.float32(1.4426950408889634)
_FARTHEST = np.float32(87)
"""e^±87 is a normal float32."""

_C1, _C2, _C3 = np.float32(0.6931471805599453), np.float32(0.24022650695910072), np.float32(0.05550410866482158)
_C4, _C5, _C6 = np.float32(0.009618129107628477), np.float32(0.0013333558146428443), np.float32(0.00015403530393381608)
"""ln(2)ⁿ / n!: the series of 2^f, whose rest is 1.2e-7 for |f| ≤ ½."""


def _bits(typing_context: Any, bits: Any) -> Any:
    """The float32 with the bits of an int32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.int32), generate


_as_float = cast("Callable[[np.int32], np.float32]", intrinsic(_bits))


@njit(inline="always")
def _exp(x: np.float32) -> np.float32:
    """e^x for |x| up to 87, within 4e-6 of itself (4e-7 up to 5), which the compiler can do for several numbers at a
    time."""
    power = min(max(x, -_FARTHEST), _FARTHEST) * _LOG2_E
    whole = np.floor(power + _HALF)
    f = power - whole
    series = _ONE + f * (_C1 + f * (_C2 + f * (_C3 + f * (_C4 + f * (_C5 + f * _C6)))))
    value: np.float32 = series * _as_float((np.int32(whole) + np.int32(127)) << np.int32(23))
    return value


@_compiled("F2 U2 F1")
def quantize(x: Floats, levels: Bytes, largest: Floats) -> None:
    """The levels [rows, n] of x [rows, n], and each row's largest magnitude [rows]."""
    for row in range(x.shape[0]):
        top = _LEAST
        for i in range(x.shape[1]):
            top = max(top, abs(x[row, i]))
        largest[row] = top
        scale = _LEVELS / top
        for i in range(x.shape[1]):
            levels[row, i] = np.uint8(np.int32(x[row, i] * scale + _ROUNDING))


@_compiled("F2 F2 F1 F1 F1 f4 F2 U2 F1")
def add_and_normalize(
    x: Floats,
    product: Floats,
    scale: Floats,
    bias: Floats,
    weight: Floats,
    eps: np.float32,
    normal: Floats,
    levels: Bytes,
    largest: Floats,
) -> None:
    """x += product · scale + bias; then its RMS normalization and the levels of that.

    Args:
        x, product, normal, levels: [rows, n]; scale, largest: [rows]; bias, weight: [n].
    """
    rows, n = x.shape
    for row in range(rows):
        by, squares = scale[row], np.float32(0)
        for i in range(n):
            value = x[row, i] + (product[row, i] * by + bias[i])
            x[row, i] = value
            squares += value * value
        by, top = _ONE / np.sqrt(squares / np.float32(n) + eps), _LEAST
        for i in range(n):
            value = x[row, i] * by * weight[i]
            normal[row, i] = value
            top = max(top, abs(value))
        largest[row] = top
        by = _LEVELS / top
        for i in range(n):
            levels[row, i] = np.uint8(np.int32(normal[row, i] * by + _ROUNDING))


@_compiled("F2 F1 F1 F2 U2 F1")
def swiglu(product: Floats, scale: Floats, bias: Floats, inner: Floats, levels: Bytes, largest: Floats) -> None:
    """SwiGLU: `inner` = silu(first half) · second half of product · scale + bias, and the levels of that.

    Args:
        product: [rows, 2n]; scale, largest: [rows]; bias: [2n]; inner, levels: [rows, n].
    """
    rows, n = inner.shape
    for row in range(rows):
        by, top = scale[row], _LEAST
        half, up, out = product[row, :n], product[row, n:], inner[row]
        for i in range(n):
            value = half[i] * by + bias[i]
            out[i] = value / (_ONE + _exp(-value)) * (up[i] * by + bias[n + i])
        for i in range(n):
            top = max(top, abs(out[i]))
        largest[row] = top
        by = _LEVELS / top
        for i in range(n):
            levels[row, i] = np.uint8(np.int32(out[i] * by + _ROUNDING))


@_compiled("F2 F1 F1 F2 f4 F2 F2 F1 i8 F3 F3 F3")
def split_heads(
    product: Floats,
    scale: Floats,
    bias: Floats,
    norm: Floats,
    eps: np.float32,
    cos: Floats,
    sin: Floats,
    query_scale: Floats,
    past: int,
    query: Floats,
    keys: Floats,
    values: Floats,
) -> None:
    """Queries, keys and values from product · scale + bias, in their places: queries and keys are turned by the angles
    of their positions, keys and values written behind the `past` ones that are there.

    Args:
        product: [rows, (heads + 2 kv_heads) · head_dim]; scale, query_scale: [rows]; bias as a row of it.
        norm: [heads + kv_heads, head_dim], what heads are RMS-normalized with; nothing where they are not.
        cos, sin: [rows, head_dim], the first half of `sin` negative.
        query: [rows, heads, head_dim]; keys, values: [kv_heads, room, head_dim].
    """
    rows, heads, size = query.shape
    kv_heads, half = keys.shape[0], size // 2
    head = np.empty(size, np.float32)
    for row in range(rows):
        by = scale[row]
        for n in range(heads + kv_heads):
            squares = np.float32(0)
            for i in range(size):
                value = product[row, n * size + i] * by + bias[n * size + i]
                head[i] = value
                squares += value * value
            if len(norm):
                by_head = _ONE / np.sqrt(squares / np.float32(size) + eps)
                for i in range(size):
                    head[i] = head[i] * by_head * norm[n, i]
            to = query[row, n] if n < heads else keys[n - heads, past + row]
            grown = query_scale[row] if n < heads else _ONE
            for i in range(half):
                low, high = head[i], head[half + i]
                to[i] = (low * cos[row, i] + high * sin[row, i]) * grown
                to[half + i] = (high * cos[row, half + i] + low * sin[row, half + i]) * grown
        for n in range(kv_heads):
            start = (heads + kv_heads + n) * size
            for i in range(size):
                values[n, past + row, i] = product[row, start + i] * by + bias[start + i]


@_compiled("F2 F2 P1 F2")
def _weigh(query: Floats, keys: Floats, seen: Places, weights: Floats) -> None:
    """weights[g, n] = softmax over n of query[g] · keys[seen[n]] / √head_dim, for [group, head_dim] queries; four keys
    at a time, so that a query is fetched once for them."""
    group, size = query.shape
    scale, fours = _ONE / np.sqrt(np.float32(size)), len(seen) // 4 * 4
    for n in range(0, fours, 4):
        k0, k1, k2, k3 = keys[seen[n]], keys[seen[n + 1]], keys[seen[n + 2]], keys[seen[n + 3]]
        for g in range(group):
            one = query[g]
            s0, s1, s2, s3 = np.float32(0), np.float32(0), np.float32(0), np.float32(0)
            for i in range(size):
                s0 += one[i] * k0[i]
                s1 += one[i] * k1[i]
                s2 += one[i] * k2[i]
                s3 += one[i] * k3[i]
            weights[g, n], weights[g, n + 1], weights[g, n + 2], weights[g, n + 3] = s0, s1, s2, s3
    for n in range(fours, len(seen)):
        key = keys[seen[n]]
        for g in range(group):
            score = np.float32(0)
            for i in range(size):
                score += query[g, i] * key[i]
            weights[g, n] = score
    for g in range(group):
        scores, top, total = weights[g, : len(seen)], weights[g, 0], np.float32(0)
        for n in range(len(scores)):
            top = max(top, scores[n])
        for n in range(len(scores)):
            scores[n] = _exp((scores[n] - top) * scale)
            total += scores[n]
        for n in range(len(scores)):
            scores[n] /= total


@_compiled("F2 P1 F2 F2")
def _mix(values: Floats, seen: Places, weights: Floats, mixed: Floats) -> None:
    """mixed[g] = Σ weights[g, n] · values[seen[n]], [group, head_dim]; four values at a time, so that a sum is fetched
    and stored once for them."""
    group, size = mixed.shape
    fours = len(seen) // 4 * 4
    mixed[:] = 0
    for n in range(0, fours, 4):
        v0, v1, v2, v3 = values[seen[n]], values[seen[n + 1]], values[seen[n + 2]], values[seen[n + 3]]
        for g in range(group):
            w0, w1, w2, w3, out = weights[g, n], weights[g, n + 1], weights[g, n + 2], weights[g, n + 3], mixed[g]
            for i in range(size):
                out[i] += (w0 * v0[i] + w1 * v1[i]) + (w2 * v2[i] + w3 * v3[i])
    for n in range(fours, len(seen)):
        value = values[seen[n]]
        for g in range(group):
            weight = weights[g, n]
            for i in range(size):
                mixed[g, i] += weight * value[i]


@_compiled("F3 F3 F3 i8 B2 F2")
def attend_rows(query: Floats, keys: Floats, values: Floats, past: int, sees: Bools, out: Floats) -> None:
    """Grouped-query attention, a row at a time, each over nothing but the keys that it sees, in their order.

    Args:
        query: [rows, heads, head_dim]; keys, values: [kv_heads, room, head_dim].
        past: how many of the first keys every row sees.
        sees: [rows, rows], which of the keys behind those each row sees, itself among them.
        out: [rows, heads · head_dim].
    """
    rows, heads, size = query.shape
    kv_heads = keys.shape[0]
    group = heads // kv_heads
    seen, weights = np.arange(past + rows), np.empty((group, past + rows), np.float32)
    for row in range(rows):
        count = past
        for new in range(rows):
            if sees[row, new]:
                seen[count] = past + new
                count += 1
        mixed = out[row].reshape(kv_heads, group, size)
        for kv in range(kv_heads):
            _weigh(query[row, kv * group : (kv + 1) * group], keys[kv], seen[:count], weights)
            _mix(values[kv], seen[:count], weights, mixed[kv])


@_compiled("F2 P1 F1 I2 F1 I2 F1 P1 F2")
def add_low_rank(
    x: Floats,
    rows: Places,
    scale: Floats,
    a: Signed,
    a_scale: Floats,
    b: Signed,
    b_scale: Floats,
    ends: Places,
    product: Floats,
) -> None:
    """product[row] += (x[row] Aᵀ) Bᵀ / scale[row], for some rows: an adapter's part of a product that is yet to be
    multiplied by that scale. Projections side by side have A's below each other, and each its own B.

    Args:
        x: [all rows, in]; product: [all rows, out]; scale: [all rows].
        a: [projections · rank, in], b: [rank, out] (Bᵀ of each side by side), of -127 to 127; a_scale, b_scale: what
            those are multiplied by, [projections · rank], [out].
        ends: where each projection's outputs end.
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
        to, by = product[rows[n]], _ONE / scale[rows[n]]
        for i in range(len(mixed)):
            to[i] += mixed[i] * b_scale[i] * by
