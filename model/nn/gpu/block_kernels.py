"""Triton kernels that multiply by block-quantized weights (`block_matrix.py`): those of `kernels.py` for weights at the
bits that a GGUF file stores. A program reads the bits, expands them in registers to what the file's numbers are in the
storage's type, and multiplies these; so results are those of the other kernels with expanded weights.

`LAYOUT`, `BITS` and `OFFSET` are those of a `BlockFormat`. Loops take a pair of blocks, 64 inputs, at a time.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from model.nn.gpu.kernels import (
    _after_previous,
    _columns_of,
    _dot,
    _finish_gate_up,
    _finish_prediction,
    _finish_split,
    _rounded,
    _rows_of,
)


@triton.jit
def _block_scale(factors, words, pair, SECOND: tl.constexpr, n, width, LAYOUT: tl.constexpr):
    """Scale and minimum of the first or the second block of a pair for columns n, in float32. In the layout `super`,
    the scales of its two halves."""
    inside = n < width
    if LAYOUT == "pair":
        first = tl.load(factors + (2 * pair + SECOND) * width + n, mask=inside, other=0.0).to(tl.float32)
        other = first
    elif LAYOUT == "pair_min":
        place = factors + (2 * pair + SECOND) * 2 * width + n
        first = tl.load(place, mask=inside, other=0.0).to(tl.float32)
        other = tl.load(place + width, mask=inside, other=0.0).to(tl.float32)
    elif LAYOUT == "super_min":
        own = pair % 4
        place = factors + (pair // 4) * 2 * width + n
        factor = tl.load(place, mask=inside, other=0.0).to(tl.float32)
        factor_min = tl.load(place + width, mask=inside, other=0.0).to(tl.float32)
        word = words + (pair // 4) * 3 * width + n
        low = tl.load(word + (own // 2) * width, mask=inside, other=0) >> (16 * (own % 2) + 8 * SECOND)
        upper = tl.load(word + 2 * width, mask=inside, other=0) >> (8 * own + 4 * SECOND)
        scale = (low & 15) | ((upper & 3) << 4)
        minimum = ((low >> 4) & 15) | (((upper >> 2) & 3) << 4)
        first, other = factor * scale.to(tl.float32), factor_min * minimum.to(tl.float32)
    else:
        factor = tl.load(factors + (pair // 4) * width + n, mask=inside, other=0.0).to(tl.float32)
        word = tl.load(words + pair * width + n, mask=inside, other=0)
        first = factor * ((word << (24 - 16 * SECOND)) >> 24).to(tl.float32)  # sign-extended
        other = factor * ((word << (16 - 16 * SECOND)) >> 24).to(tl.float32)
    return first, other


@triton.jit
def _expand(q, scale, other, LAYOUT: tl.constexpr, OFFSET: tl.constexpr, KIND: tl.constexpr, PRECISE: tl.constexpr):
    """Weights [32, n] from integers, and what `_block_scale` returns."""
    values = q.to(tl.float32)
    if LAYOUT == "super":
        half = (tl.arange(0, 32) < 16)[:, None]
        values = (values - OFFSET) * tl.where(half, scale[None, :], other[None, :])
    elif LAYOUT == "pair":
        values = (values - OFFSET) * scale[None, :]
    else:
        values = values * scale[None, :] - other[None, :]
    return _rounded(values, KIND, PRECISE)


@triton.jit
def _pair_of(
    low, high, words, factors, pair, n, width,
    LAYOUT: tl.constexpr, BITS: tl.constexpr, OFFSET: tl.constexpr, KIND: tl.constexpr, PRECISE: tl.constexpr,
):  # fmt: skip
    """The weights of a pair of blocks for columns n of a matrix of `width` columns: two tiles [32, n], zeros
    outside."""
    inside = (n < width)[None, :]
    tile = n[None, :] * 32 + tl.arange(0, 32)[:, None]
    if BITS == 8:
        first = tl.load(low + pair * 2 * width * 32 + tile, mask=inside, other=OFFSET)
        second = tl.load(low + (pair * 2 + 1) * width * 32 + tile, mask=inside, other=OFFSET)
    else:
        both = tl.load(low + pair * width * 32 + tile, mask=inside, other=0)
        first, second = both & 15, both >> 4
        if BITS == 5:
            plane = tl.load(high + (pair // 4) * width * 32 + tile, mask=inside, other=0).to(tl.int32)
            plane = plane >> (2 * (pair % 4))
            first = first | ((plane & 1) << 4)
            second = second | ((plane & 2) << 3)
        elif BITS == 6:
            plane = tl.load(high + (pair // 2) * width * 32 + tile, mask=inside, other=0).to(tl.int32)
            plane = plane >> (4 * (pair % 2))
            first = first | ((plane & 3) << 4)
            second = second | ((plane & 12) << 2)
    scale, other = _block_scale(factors, words, pair, 0, n, width, LAYOUT)
    first = _expand(first, scale, other, LAYOUT, OFFSET, KIND, PRECISE)
    scale, other = _block_scale(factors, words, pair, 1, n, width, LAYOUT)
    return first, _expand(second, scale, other, LAYOUT, OFFSET, KIND, PRECISE)


@triton.jit
def _operand(x, norm, m, k, rows, depth, squares, NORM: tl.constexpr, KIND: tl.constexpr, PRECISE: tl.constexpr):
    """A tile of the rows [m, k] as a factor of products, and the sums of squares."""
    values, weighted = _rows_of(x, norm, m, k, rows, depth, NORM)
    if NORM:
        squares += tl.sum(values * values, 1)
    return _rounded(weighted, KIND, PRECISE), squares


@triton.jit
def _sums(
    x, norm, low, high, words, factors, own_a, m, n, r, split, rows, width, depth, rank, total, lows, squares,
    LAYOUT: tl.constexpr, BITS: tl.constexpr, OFFSET: tl.constexpr, NORM: tl.constexpr, ADAPTER: tl.constexpr,
    SPLITS: tl.constexpr, PRECISE: tl.constexpr,
):  # fmt: skip
    """x Wᵀ, x Aᵀ and the sums of squares of x over a part of the depth."""
    kind = x.dtype.element_ty
    share = tl.cdiv(tl.cdiv(depth, 256), SPLITS) * 4
    for pair in range(split * share, min(split * share + share, tl.cdiv(depth, 64))):
        k = pair * 64 + tl.arange(0, 32)
        first, second = _pair_of(low, high, words, factors, pair, n, width, LAYOUT, BITS, OFFSET, kind, PRECISE)
        operand, squares = _operand(x, norm, m, k, rows, depth, squares, NORM, kind, PRECISE)
        total = _dot(operand, first, total, PRECISE)
        if ADAPTER:
            lows = _dot(operand, _columns_of(own_a, r, k, depth, rank, depth), lows, PRECISE)
        operand, squares = _operand(x, norm, m, k + 32, rows, depth, squares, NORM, kind, PRECISE)
        total = _dot(operand, second, total, PRECISE)
        if ADAPTER:
            lows = _dot(operand, _columns_of(own_a, r, k + 32, depth, rank, depth), lows, PRECISE)
    return total, lows, squares


@triton.jit(do_not_specialize=["rows", "first_draft"])
def project_blocks(
    x, norm, low_0, high_0, words_0, factors_0, low_1, high_1, words_1, factors_1, bias, a, b, residual, out, partials,
    counters, rows, first_draft, columns, border, depth, rank, end_0, end_1, eps,
    LAYOUT_0: tl.constexpr, BITS_0: tl.constexpr, OFFSET_0: tl.constexpr,
    LAYOUT_1: tl.constexpr, BITS_1: tl.constexpr, OFFSET_1: tl.constexpr,
    NORM: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ADAPTER: tl.constexpr, SPLITS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, RANK: tl.constexpr, PRECISE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """`project` with weights in one or two sections: the first `border` columns, and the rest. The grid is the same."""
    _after_previous(DEPENDENT)
    tile, split = tl.program_id(0), tl.program_id(1)
    m = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    n, r = tile * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, RANK)
    own_a = a
    if ADAPTER:
        group = (tile * COLUMNS >= end_0).to(tl.int32) + (tile * COLUMNS >= end_1).to(tl.int32)
        own_a = a + group * rank * depth
    total, low = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, RANK), tl.float32)
    squares = tl.zeros((ROWS,), tl.float32)
    if BITS_1 == 0:  # noqa: SIM114 - only this condition is known to the compiler
        total, low, squares = _sums(
            x, norm, low_0, high_0, words_0, factors_0, own_a, m, n, r, split, rows, border, depth, rank, total, low,
            squares, LAYOUT_0, BITS_0, OFFSET_0, NORM, ADAPTER, SPLITS, PRECISE,
        )  # fmt: skip
    elif tile * COLUMNS < border:
        total, low, squares = _sums(
            x, norm, low_0, high_0, words_0, factors_0, own_a, m, n, r, split, rows, border, depth, rank, total, low,
            squares, LAYOUT_0, BITS_0, OFFSET_0, NORM, ADAPTER, SPLITS, PRECISE,
        )  # fmt: skip
    else:
        total, low, squares = _sums(
            x, norm, low_1, high_1, words_1, factors_1, own_a, m, n - border, r, split, rows, columns - border, depth,
            rank, total, low, squares, LAYOUT_1, BITS_1, OFFSET_1, NORM, ADAPTER, SPLITS, PRECISE,
        )  # fmt: skip
    _finish_split(
        total, low, squares, bias, b, residual, out, partials, counters, tile, split, rows, first_draft, columns, depth,
        rank, eps, NORM, BIAS, RESIDUAL, ADAPTER, SPLITS, ROWS, COLUMNS, RANK, PRECISE,
    )  # fmt: skip


@triton.jit(do_not_specialize=["rows", "first_draft"])
def gate_up_blocks(
    x, norm, low, high, words, factors, bias, a, b, out, rows, first_draft, columns, depth, rank, eps,
    LAYOUT: tl.constexpr, BITS: tl.constexpr, OFFSET: tl.constexpr, BIAS: tl.constexpr, ADAPTER: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, RANK: tl.constexpr, PRECISE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """`gate_up` with weights in blocks. The grid is the same."""
    _after_previous(DEPENDENT)
    tile = tl.program_id(0)
    m, n, r = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tile * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, RANK)
    up_n = tl.where(n < columns, columns + n, 2 * columns)
    gate, up = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    low_gate, low_up = tl.zeros((ROWS, RANK), tl.float32), tl.zeros((ROWS, RANK), tl.float32)
    squares = tl.zeros((ROWS,), tl.float32)
    kind = x.dtype.element_ty
    for pair in range(tl.cdiv(depth, 64)):
        k = pair * 64 + tl.arange(0, 32)
        gate_0, gate_1 = _pair_of(low, high, words, factors, pair, n, 2 * columns, LAYOUT, BITS, OFFSET, kind, PRECISE)
        up_0, up_1 = _pair_of(low, high, words, factors, pair, up_n, 2 * columns, LAYOUT, BITS, OFFSET, kind, PRECISE)
        operand, squares = _operand(x, norm, m, k, rows, depth, squares, True, kind, PRECISE)
        gate, up = _dot(operand, gate_0, gate, PRECISE), _dot(operand, up_0, up, PRECISE)
        if ADAPTER:
            low_gate = _dot(operand, _columns_of(a, r, k, depth, rank, depth), low_gate, PRECISE)
            low_up = _dot(operand, _columns_of(a + rank * depth, r, k, depth, rank, depth), low_up, PRECISE)
        operand, squares = _operand(x, norm, m, k + 32, rows, depth, squares, True, kind, PRECISE)
        gate, up = _dot(operand, gate_1, gate, PRECISE), _dot(operand, up_1, up, PRECISE)
        if ADAPTER:
            low_gate = _dot(operand, _columns_of(a, r, k + 32, depth, rank, depth), low_gate, PRECISE)
            low_up = _dot(operand, _columns_of(a + rank * depth, r, k + 32, depth, rank, depth), low_up, PRECISE)
    _finish_gate_up(
        gate, up, low_gate, low_up, squares, bias, b, out, m, n, rows, first_draft, columns, depth, rank, eps, BIAS,
        ADAPTER, RANK, PRECISE,
    )  # fmt: skip


@triton.jit(do_not_specialize=["rows"])
def predict_tile_blocks(
    x, norm, low, high, words, factors, best, token, weights, rows, columns, depth, eps, excluded,
    LAYOUT: tl.constexpr, BITS: tl.constexpr, OFFSET: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    PRECISE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """`predict_tile` with weights in blocks. The grid is the same."""
    _after_previous(DEPENDENT)
    tile = tl.program_id(0)
    m, n = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tile * COLUMNS + tl.arange(0, COLUMNS)
    total, lows = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, 16), tl.float32)
    squares = tl.zeros((ROWS,), tl.float32)
    total, lows, squares = _sums(
        x, norm, low, high, words, factors, low, m, n, tl.arange(0, 16), 0, rows, columns, depth, 0, total, lows,
        squares, LAYOUT, BITS, OFFSET, True, False, 1, PRECISE,
    )  # fmt: skip
    _finish_prediction(total, squares, best, token, weights, tile, m, n, columns, depth, eps, excluded, ROWS, COLUMNS)


@triton.jit
def expand_blocks(
    low, high, words, factors, out, width, depth,
    LAYOUT: tl.constexpr, BITS: tl.constexpr, OFFSET: tl.constexpr, COLUMNS: tl.constexpr, PRECISE: tl.constexpr,
):  # fmt: skip
    """The weights as a matrix [width, depth]. Grid: (tiles of COLUMNS columns, pairs of blocks)."""
    n, pair = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS), tl.program_id(1)
    first, second = _pair_of(
        low, high, words, factors, pair, n, width, LAYOUT, BITS, OFFSET, out.dtype.element_ty, PRECISE
    )
    k = pair * 64 + tl.arange(0, 32)
    place = out + n[None, :].to(tl.int64) * depth + k[:, None]
    inside = (n < width)[None, :]
    tl.store(place, first, mask=inside & (k < depth)[:, None])
    tl.store(place + 32, second, mask=inside & (k + 32 < depth)[:, None])
