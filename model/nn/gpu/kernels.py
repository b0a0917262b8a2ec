"""Triton kernels of a decoder layer over the few rows of a step, but for its attention (`attention_kernel.py`).
`triton_operations.py` launches them, `torch_operations.py` says in plain PyTorch what each computes.

A step has few rows, so its time is that of reading the weights once and of starting kernels. A program reads a tile of
a weight matrix for all rows. Where a matrix has too few tiles to occupy a GPU, several programs share a tile and each
sums over a part of the depth; the last one that arrives adds the parts up, in a fixed order, so that results do not
depend on timing. Sums are in float32; a result is rounded once, when it is stored.

A kernel is not compiled anew for another number of rows, unless their tile has another size.

Storage is bfloat16 or float32. With `PRECISE`, dot products are computed from float32 operands: for float32 storage,
and in Triton's interpreter, which computes those of bfloat16 wrongly.
"""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit
def _after_previous(DEPENDENT: tl.constexpr):
    """First in every kernel of a step. With programmatic dependent launch, programs start while those of the kernel
    before still run, so they wait for what it writes here; and those of the kernel after may start."""
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def _dot(x, y, total, PRECISE: tl.constexpr):
    """total + x y."""
    if PRECISE:
        return tl.dot(x.to(tl.float32), y.to(tl.float32), total, input_precision="ieee")
    return tl.dot(x, y, total)


@triton.jit
def _rounded(x, KIND: tl.constexpr, PRECISE: tl.constexpr):
    """x in another type, rounded to the nearest value. Triton's interpreter truncates to bfloat16, so that the bits are
    rounded here before."""
    if PRECISE and tl.bfloat16 == KIND:
        bits = x.to(tl.int32, bitcast=True)
        bits += 0x7FFF + ((bits >> 16) & 1)
        x = (bits & -65536).to(tl.float32, bitcast=True)
    return x.to(KIND)


@triton.jit
def _columns_of(matrix, n, k, width, columns, depth):
    """A tile of a matrix [columns, depth], transposed: [k, n], zeros outside. Row n of the matrix is at n × width."""
    inside = (n[None, :] < columns) & (k[:, None] < depth)
    return tl.load(matrix + n[None, :] * width + k[:, None], mask=inside, other=0.0)


@triton.jit
def _rows_of(x, norm, m, k, rows, depth, NORM: tl.constexpr):
    """A tile of the rows [m, k] in float32, and the same times the weight of RMS normalization."""
    inside = (m[:, None] < rows) & (k[None, :] < depth)
    values = tl.load(x + m[:, None] * depth + k[None, :], mask=inside, other=0.0).to(tl.float32)
    weighted = values
    if NORM:
        weighted = values * tl.load(norm + k, mask=k < depth, other=0.0).to(tl.float32)[None, :]
    return values, weighted


@triton.jit
def _delta(low, b, m, n, columns, rank, first_draft, RANK: tl.constexpr, PRECISE: tl.constexpr):
    """What the adapter adds to a tile: low Bᵀ for draft rows, 0 for clean ones."""
    r = tl.arange(0, RANK)
    tile = _columns_of(b, n, r, rank, columns, rank)
    delta = _dot(
        _rounded(low, b.dtype.element_ty, PRECISE), tile, tl.zeros((m.shape[0], n.shape[0]), tl.float32), PRECISE
    )
    return tl.where(m[:, None] >= first_draft, delta, 0.0)


@triton.jit
def _finish_projection(
    total, low, squares, bias, b, residual, out, m, n, rows, first_draft, columns, depth, rank, eps,
    NORM: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ADAPTER: tl.constexpr, RANK: tl.constexpr,
    PRECISE: tl.constexpr,
):  # fmt: skip
    """Normalization, bias, adapter and residual of a tile whose sums are complete, and its store."""
    if NORM:
        scale = tl.rsqrt(squares / depth + eps)[:, None]
        total *= scale
        low *= scale
    if BIAS:
        total += tl.load(bias + n, mask=n < columns, other=0.0).to(tl.float32)[None, :]
    if ADAPTER:
        total += _delta(low, b, m, n, columns, rank, first_draft, RANK, PRECISE)
    inside = (m[:, None] < rows) & (n[None, :] < columns)
    place = m[:, None] * columns + n[None, :]
    if RESIDUAL:
        total += tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + place, _rounded(total, out.dtype.element_ty, PRECISE), mask=inside)


@triton.jit
def _finish_split(
    total, low, squares, bias, b, residual, out, partials, counters, tile, split, rows, first_draft, columns, depth,
    rank, eps, NORM: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ADAPTER: tl.constexpr,
    SPLITS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, RANK: tl.constexpr, PRECISE: tl.constexpr,
):  # fmt: skip
    """Adds up the parts of a tile's depth in the program that arrives last, and finishes the tile."""
    local, r = tl.arange(0, ROWS), tl.arange(0, RANK)
    m, n = tl.program_id(2) * ROWS + local, tile * COLUMNS + tl.arange(0, COLUMNS)
    if SPLITS == 1:
        _finish_projection(
            total, low, squares, bias, b, residual, out, m, n, rows, first_draft, columns, depth, rank, eps,
            NORM, BIAS, RESIDUAL, ADAPTER, RANK, PRECISE,
        )  # fmt: skip
    else:
        size: tl.constexpr = ROWS * (COLUMNS + RANK + 1)
        number = tl.program_id(2) * tl.num_programs(0) + tile
        first = partials + number * SPLITS * size
        in_total = local[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
        in_low = ROWS * COLUMNS + local[:, None] * RANK + r[None, :]
        in_squares = ROWS * (COLUMNS + RANK) + local
        own = first + split * size
        tl.store(own + in_total, total)
        if ADAPTER:
            tl.store(own + in_low, low)
        if NORM:
            tl.store(own + in_squares, squares)
        tl.debug_barrier()  # all threads have stored before one of them tells the other programs
        if tl.atomic_add(counters + number, 1, sem="acq_rel") == SPLITS - 1:
            total, low = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, RANK), tl.float32)
            squares = tl.zeros((ROWS,), tl.float32)
            for other in range(SPLITS):
                part = first + other * size
                total += tl.load(part + in_total, cache_modifier=".cg")
                if ADAPTER:
                    low += tl.load(part + in_low, cache_modifier=".cg")
                if NORM:
                    squares += tl.load(part + in_squares, cache_modifier=".cg")
            _finish_projection(
                total, low, squares, bias, b, residual, out, m, n, rows, first_draft, columns, depth, rank, eps,
                NORM, BIAS, RESIDUAL, ADAPTER, RANK, PRECISE,
            )  # fmt: skip
            tl.store(counters + number, 0)  # for the next kernel


@triton.jit(do_not_specialize=["rows", "first_draft"])
def project(
    x, norm, weight, bias, a, b, residual, out, partials, counters,
    rows, first_draft, columns, depth, rank, end_0, end_1, eps,
    NORM: tl.constexpr, BIAS: tl.constexpr, RESIDUAL: tl.constexpr, ADAPTER: tl.constexpr, SPLITS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, RANK: tl.constexpr, PRECISE: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """out = norm(x) Wᵀ + bias + adapter + residual. Grid: (tiles of COLUMNS columns, SPLITS, tiles of ROWS rows).

    A tile belongs to one projection of a fused group, which end at `end_0`, `end_1` and `columns`. Each program sums
    x Aᵀ by itself: A is small and stays in the GPU's cache, and another kernel would cost more than reading it again.
    """
    _after_previous(DEPENDENT)
    tile, split = tl.program_id(0), tl.program_id(1)
    local = tl.arange(0, ROWS)
    m, n = tl.program_id(2) * ROWS + local, tile * COLUMNS + tl.arange(0, COLUMNS)
    r = tl.arange(0, RANK)
    own_a = a
    if ADAPTER:
        group = (tile * COLUMNS >= end_0).to(tl.int32) + (tile * COLUMNS >= end_1).to(tl.int32)
        own_a = a + group * rank * depth
    total, low = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, RANK), tl.float32)
    squares = tl.zeros((ROWS,), tl.float32)
    share = tl.cdiv(tl.cdiv(depth, DEPTH), SPLITS) * DEPTH
    for start in range(split * share, min(split * share + share, depth), DEPTH):
        k = start + tl.arange(0, DEPTH)
        values, weighted = _rows_of(x, norm, m, k, rows, depth, NORM)
        if NORM:
            squares += tl.sum(values * values, 1)
        operand = _rounded(weighted, weight.dtype.element_ty, PRECISE)
        total = _dot(operand, _columns_of(weight, n, k, depth, columns, depth), total, PRECISE)
        if ADAPTER:
            low = _dot(operand, _columns_of(own_a, r, k, depth, rank, depth), low, PRECISE)
    _finish_split(
        total, low, squares, bias, b, residual, out, partials, counters, tile, split, rows, first_draft, columns, depth,
        rank, eps, NORM, BIAS, RESIDUAL, ADAPTER, SPLITS, ROWS, COLUMNS, RANK, PRECISE,
    )  # fmt: skip


@triton.jit
def _finish_gate_up(
    gate, up, low_gate, low_up, squares, bias, b, out, m, n, rows, first_draft, columns, depth, rank, eps,
    BIAS: tl.constexpr, ADAPTER: tl.constexpr, RANK: tl.constexpr, PRECISE: tl.constexpr,
):  # fmt: skip
    """Normalization, bias, adapter and activation of a tile whose sums are complete, and its store."""
    scale = tl.rsqrt(squares / depth + eps)[:, None]
    gate *= scale
    up *= scale
    if BIAS:
        gate += tl.load(bias + n, mask=n < columns, other=0.0).to(tl.float32)[None, :]
        up += tl.load(bias + columns + n, mask=n < columns, other=0.0).to(tl.float32)[None, :]
    if ADAPTER:
        gate += _delta(low_gate * scale, b, m, n, columns, rank, first_draft, RANK, PRECISE)
        up += _delta(low_up * scale, b + columns * rank, m, n, columns, rank, first_draft, RANK, PRECISE)
    inside = (m[:, None] < rows) & (n[None, :] < columns)
    result = gate / (1 + tl.exp(-gate)) * up
    tl.store(out + m[:, None] * columns + n[None, :], _rounded(result, out.dtype.element_ty, PRECISE), mask=inside)


@triton.jit(do_not_specialize=["rows", "first_draft"])
def gate_up(
    x, norm, weight, bias, a, b, out, rows, first_draft, columns, depth, rank, eps,
    BIAS: tl.constexpr, ADAPTER: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    RANK: tl.constexpr, PRECISE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """out = silu(norm(x) Wᵍᵀ) · norm(x) Wᵘᵀ, with bias and adapter inside. Grid: (tiles of COLUMNS columns, tiles
    of ROWS rows). The gate's weights are the first `columns` rows, those of up the rest; likewise bias, A and B."""
    _after_previous(DEPENDENT)
    tile = tl.program_id(0)
    m, n, r = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tile * COLUMNS + tl.arange(0, COLUMNS), tl.arange(0, RANK)
    gate, up = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    low_gate, low_up = tl.zeros((ROWS, RANK), tl.float32), tl.zeros((ROWS, RANK), tl.float32)
    squares = tl.zeros((ROWS,), tl.float32)
    for start in range(0, depth, DEPTH):
        k = start + tl.arange(0, DEPTH)
        values, weighted = _rows_of(x, norm, m, k, rows, depth, True)
        squares += tl.sum(values * values, 1)
        operand = _rounded(weighted, weight.dtype.element_ty, PRECISE)
        gate = _dot(operand, _columns_of(weight, n, k, depth, columns, depth), gate, PRECISE)
        up = _dot(operand, _columns_of(weight + columns * depth, n, k, depth, columns, depth), up, PRECISE)
        if ADAPTER:
            low_gate = _dot(operand, _columns_of(a, r, k, depth, rank, depth), low_gate, PRECISE)
            low_up = _dot(operand, _columns_of(a + rank * depth, r, k, depth, rank, depth), low_up, PRECISE)
    _finish_gate_up(
        gate, up, low_gate, low_up, squares, bias, b, out, m, n, rows, first_draft, columns, depth, rank, eps, BIAS,
        ADAPTER, RANK, PRECISE,
    )  # fmt: skip


@triton.jit
def _finish_prediction(
    total, squares, best, token, weights, tile, m, n, columns, depth, eps, excluded,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Stores what `predict_merge` needs of a tile whose sums are complete."""
    padded = tl.num_programs(1) * ROWS
    logits = total * tl.rsqrt(squares / depth + eps)[:, None]
    logits = tl.where((n < columns) & (n != excluded), logits, float("-inf"))
    highest = tl.max(logits, 1)
    finite = tl.where(highest == float("-inf"), 0.0, highest)
    tl.store(best + tile * padded + m, highest)
    tl.store(token + tile * padded + m, tile * COLUMNS + tl.argmax(logits, 1))
    tl.store(weights + tile * padded + m, tl.sum(tl.exp(logits - finite[:, None]), 1))


@triton.jit(do_not_specialize=["rows"])
def predict_tile(
    x, norm, weight, best, token, weights, rows, columns, depth, eps, excluded,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PRECISE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """The largest logit of each row among COLUMNS tokens, its token, and Σ exp(logit - largest): [tiles, padded rows]
    each. Grid: (tiles, tiles of ROWS rows). No logit is stored. `excluded` is a token that is never predicted."""
    _after_previous(DEPENDENT)
    tile = tl.program_id(0)
    m, n = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tile * COLUMNS + tl.arange(0, COLUMNS)
    total, squares = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS,), tl.float32)
    for start in range(0, depth, DEPTH):
        k = start + tl.arange(0, DEPTH)
        values, weighted = _rows_of(x, norm, m, k, rows, depth, True)
        squares += tl.sum(values * values, 1)
        operand = _rounded(weighted, weight.dtype.element_ty, PRECISE)
        total = _dot(operand, _columns_of(weight, n, k, depth, columns, depth), total, PRECISE)
    _finish_prediction(total, squares, best, token, weights, tile, m, n, columns, depth, eps, excluded, ROWS, COLUMNS)


@triton.jit
def predict_merge(
    best, token, weights, tokens, confidence, tiles, padded, TILES: tl.constexpr, DEPENDENT: tl.constexpr
):  # fmt: skip
    """The most likely token of a row over all tiles, and its probability. Grid: (rows,)."""
    _after_previous(DEPENDENT)
    row, tile = tl.program_id(0), tl.arange(0, TILES)
    inside = tile < tiles
    place = tile * padded + row
    part = tl.load(best + place, mask=inside, other=float("-inf"))
    highest = tl.max(part, 0)
    candidates = tl.load(token + place, mask=inside & (part == highest), other=2147483647)
    tl.store(tokens + row, tl.min(candidates, 0).to(tl.int64))
    sums = tl.load(weights + place, mask=inside, other=0.0)
    tl.store(confidence + row, 1.0 / tl.sum(sums * tl.exp(part - highest), 0))
