"""Triton kernels of a block drafter (`nn/block_drafter.py`) beside those of a layer: what they compute is said in plain
PyTorch in `drafter_operations.py`. `PRECISE` is as in `kernels.py`."""

# mypy: ignore-errors

import triton
import triton.language as tl

from model.nn.gpu.kernels import _after_previous, _columns_of, _dot, _rounded


@triton.jit
def _of_gathered(
    x, weight, matrix, row, inside, columns, depth, width, size,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, WEIGHTED: tl.constexpr, PRECISE: tl.constexpr,
):  # fmt: skip
    """Products of some rows of x, times a weight, with columns of a matrix; and the sums of squares with and without
    that weight."""
    total, plain = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS,), tl.float32)
    squares = tl.zeros((ROWS,), tl.float32)
    for start in range(0, depth, DEPTH):
        k = start + tl.arange(0, DEPTH)
        values = tl.load(x + row[:, None] * depth + k[None, :], mask=inside[:, None] & (k < depth)[None, :], other=0.0)
        values = values.to(tl.float32)
        plain += tl.sum(values * values, 1)
        if WEIGHTED:
            values *= tl.load(weight + k, mask=k < depth, other=0.0).to(tl.float32)[None, :]
        squares += tl.sum(values * values, 1)
        part = _columns_of(matrix, columns, k, width, size, depth)
        total = _dot(_rounded(values, matrix.dtype.element_ty, PRECISE), part, total, PRECISE)
    return total, squares, plain


@triton.jit(do_not_specialize=["conversations"])
def read_features(
    first, second, states, norm, newest, last, slots, table, features, inputs, context, z, partials, counters,
    conversations, hidden, size, eps, own_eps,
    TAPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PRECISE: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """What a draft head reads of the rows that predicted the newest tokens, and of these tokens. Grid: (tiles of
    COLUMNS columns, TAPS + 2 parts of the input, tiles of ROWS conversations). The last program of a tile that arrives
    adds up the parts: the tapped states, the normalized ones, and the embedding."""
    _after_previous(DEPENDENT)
    tile, part = tl.program_id(0), tl.program_id(1)
    local = tl.arange(0, ROWS)
    m, columns = tl.program_id(2) * ROWS + local, tile * COLUMNS + tl.arange(0, COLUMNS)
    inside = m < conversations
    row = tl.load(newest + m, mask=inside, other=0)
    slot = tl.load(slots + m, mask=inside, other=0)
    token = tl.load(last + slot, mask=inside, other=0)
    width = (TAPS + 1) * hidden
    if part == TAPS:
        total, squares, plain = _of_gathered(
            states, norm, features + TAPS * hidden, row, inside, columns, hidden, width, size, ROWS, COLUMNS, DEPTH,
            True, PRECISE,
        )  # fmt: skip
    elif part == TAPS + 1:
        total, squares, plain = _of_gathered(
            table, norm, inputs, token, inside, columns, hidden, hidden + size, size, ROWS, COLUMNS, DEPTH, False,
            PRECISE,
        )  # fmt: skip
    elif part == 0:
        total, squares, plain = _of_gathered(
            first, norm, features, row, inside, columns, hidden, width, size, ROWS, COLUMNS, DEPTH, False, PRECISE
        )
    else:
        total, squares, plain = _of_gathered(
            second, norm, features + hidden, row, inside, columns, hidden, width, size, ROWS, COLUMNS, DEPTH, False,
            PRECISE,
        )  # fmt: skip
    part_size: tl.constexpr = ROWS * (COLUMNS + 2)
    number = tl.program_id(2) * tl.num_programs(0) + tile
    parts = partials + number * (TAPS + 2) * part_size
    in_total = local[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    in_squares, in_plain = ROWS * COLUMNS + local, ROWS * (COLUMNS + 1) + local
    own = parts + part * part_size
    tl.store(own + in_total, total)
    tl.store(own + in_squares, squares)
    tl.store(own + in_plain, plain)
    tl.debug_barrier()
    if tl.atomic_add(counters + number, 1, sem="acq_rel") == TAPS + 1:
        total, squares = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS,), tl.float32)
        for read in range(TAPS + 1):
            piece = parts + read * part_size
            plain = tl.load(piece + in_plain, cache_modifier=".cg")
            factor = tl.rsqrt(plain / hidden + tl.where(read == TAPS, eps, own_eps))
            total += tl.load(piece + in_total, cache_modifier=".cg") * factor[:, None]
            squares += tl.load(piece + in_squares, cache_modifier=".cg") * factor * factor
        of_token = parts + (TAPS + 1) * part_size
        total *= tl.rsqrt(squares / width + own_eps)[:, None]
        factor = tl.rsqrt(tl.load(of_token + in_plain, cache_modifier=".cg") / hidden + own_eps)
        follows = total + tl.load(of_token + in_total, cache_modifier=".cg") * factor[:, None]
        place = m[:, None] * size + columns[None, :]
        mask = inside[:, None] & (columns < size)[None, :]
        tl.store(context + place, _rounded(total, context.dtype.element_ty, PRECISE), mask=mask)
        tl.store(z + place, _rounded(follows, z.dtype.element_ty, PRECISE), mask=mask)
        tl.store(counters + number, 0)


@triton.jit(do_not_specialize=["conversations"])
def attend_block(
    fused, weight, residual, out, conversations, scale,
    BLOCK: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, PRECISE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Attention of the BLOCK rows of each conversation to each other, its projection, and the residual. Grid: (tiles of
    COLUMNS columns, groups of conversations). Every program computes the attention by itself: it is small."""
    _after_previous(DEPENDENT)
    SIZE: tl.constexpr = HEADS * HEAD_DIM
    each: tl.constexpr = ROWS // BLOCK
    width: tl.constexpr = (HEADS + 2 * KV_HEADS) * HEAD_DIM
    m, d = tl.arange(0, ROWS), tl.arange(0, HEAD_DIM)
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    row = tl.program_id(1) * each * BLOCK + m
    inside = (m < each * BLOCK) & (row < conversations * BLOCK)
    same = (m // BLOCK)[:, None] == (m // BLOCK)[None, :]
    place = fused + row[:, None] * width + d[None, :]
    kind = out.dtype.element_ty
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for head in range(HEADS):
        own = HEADS * HEAD_DIM + head // (HEADS // KV_HEADS) * HEAD_DIM
        query = tl.load(place + head * HEAD_DIM, mask=inside[:, None], other=0.0)
        key = tl.load(place + own, mask=inside[:, None], other=0.0)
        value = tl.load(place + KV_HEADS * HEAD_DIM + own, mask=inside[:, None], other=0.0)
        scores = _dot(query, tl.trans(key), tl.zeros((ROWS, ROWS), tl.float32), PRECISE) * scale
        scores = tl.where(same, scores, float("-inf"))
        shares = tl.exp(scores - tl.max(scores, 1)[:, None])
        attended = _dot(_rounded(shares, kind, PRECISE), value, tl.zeros((ROWS, HEAD_DIM), tl.float32), PRECISE)
        attended = _rounded(attended / tl.sum(shares, 1)[:, None], kind, PRECISE)
        part = _columns_of(weight, columns, head * HEAD_DIM + d, SIZE, SIZE, SIZE)
        total = _dot(attended, part, total, PRECISE)
    mask = inside[:, None] & (columns < SIZE)[None, :]
    total += tl.load(residual + row[:, None] * SIZE + columns[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(out + row[:, None] * SIZE + columns[None, :], _rounded(total, kind, PRECISE), mask=mask)


@triton.jit(do_not_specialize=["rows", "count"])
def score(
    x, vocabulary, logits, best, rows, block, count, columns, depth, eps,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PRECISE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Logits of the first `count` rows of each block of normalized x, and the largest one of each tile. Grid: (tiles of
    COLUMNS tokens, tiles of ROWS rows)."""
    _after_previous(DEPENDENT)
    tile = tl.program_id(0)
    m, n = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tile * COLUMNS + tl.arange(0, COLUMNS)
    total, squares = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS,), tl.float32)
    row, inside = m // count * block + m % count, m < rows
    for start in range(0, depth, DEPTH):
        k = start + tl.arange(0, DEPTH)
        values = tl.load(x + row[:, None] * depth + k[None, :], mask=inside[:, None] & (k < depth)[None, :], other=0.0)
        squares += tl.sum(values.to(tl.float32) * values.to(tl.float32), 1)
        total = _dot(values, _columns_of(vocabulary, n, k, depth, columns, depth), total, PRECISE)
    total *= tl.rsqrt(squares / depth + eps)[:, None]
    mask = inside[:, None] & (n < columns)[None, :]
    tl.store(logits + m[:, None] * columns + n[None, :], total, mask=mask)
    highest = tl.max(tl.where((n < columns)[None, :], total, float("-inf")), 1)
    tl.store(best + m * tl.num_programs(0) + tile, highest, mask=inside)


@triton.jit(do_not_specialize=["number", "count"])
def compare(
    logits, highest, state, vocabulary, best, index, weights, number, count, parts, columns, depth, eps, near, of_read,
    of_denoised, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, PARTS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """The likeliest token of row `number` of a conversation's block among COLUMNS, by what was denoised and by what the
    head has read: the best score, its place in the vocabulary, and Σ exp(score - best). Grid: (tiles, conversations).
    Only tokens whose logit is at most `near` below the largest one of all `parts` are compared, so most programs read
    none."""
    _after_previous(DEPENDENT)
    tile, conversation, tiles = tl.program_id(0), tl.program_id(1), tl.num_programs(0)
    row, t = conversation * count + number, tl.arange(0, PARTS)
    top = tl.max(tl.load(highest + row * parts + t, mask=t < parts, other=float("-inf")), 0)
    n = tile * COLUMNS + tl.arange(0, COLUMNS)
    denoised = tl.load(logits + row * columns + n, mask=n < columns, other=float("-inf"))
    close = denoised > top - near
    scores = tl.full((COLUMNS,), float("-inf"), tl.float32)
    if tl.max(close.to(tl.int32), 0) > 0:
        read, squares = tl.zeros((COLUMNS,), tl.float32), 0.0
        for start in range(0, depth, DEPTH):
            k = start + tl.arange(0, DEPTH)
            own = tl.load(state + conversation * depth + k, mask=k < depth, other=0.0).to(tl.float32)
            squares += tl.sum(own * own, 0)
            mask = close[:, None] & (k < depth)[None, :]
            part = tl.load(vocabulary + n[:, None] * depth + k[None, :], mask=mask, other=0.0).to(tl.float32)
            read += tl.sum(part * own[None, :], 1)
        read *= tl.rsqrt(squares / depth + eps)
        scores = tl.where(close, of_denoised * denoised + of_read * read, float("-inf"))
    most = tl.max(scores, 0)
    place = conversation * tiles + tile
    tl.store(best + place, most)
    tl.store(index + place, tl.min(tl.where(scores == most, n, 2147483647), 0))
    tl.store(weights + place, tl.sum(tl.where(close, tl.exp(scores - most), 0.0), 0))


@triton.jit
def _chosen(best, index, weights, m, conversations, tiles, ROWS: tl.constexpr, TILES: tl.constexpr):
    """The likeliest token of each conversation over all tiles (the first of equals), and its probability."""
    highest, total = tl.full((ROWS,), float("-inf"), tl.float32), tl.zeros((ROWS,), tl.float32)
    chosen = tl.zeros((ROWS,), tl.int32)
    for start in range(0, tiles, TILES):
        t = start + tl.arange(0, TILES)
        inside = (m < conversations)[:, None] & (t < tiles)[None, :]
        place = m[:, None] * tiles + t[None, :]
        part = tl.load(best + place, mask=inside, other=float("-inf"))
        top = tl.max(part, 1)
        candidates = tl.load(index + place, mask=inside & (part == top[:, None]), other=2147483647)
        chosen = tl.where(top > highest, tl.min(candidates, 1), chosen)
        higher = tl.maximum(highest, top)
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        sums = tl.load(weights + place, mask=inside, other=0.0)
        total = total * tl.exp(highest - finite) + tl.sum(sums * tl.exp(part - finite[:, None]), 1)
        highest = higher
    return chosen, 1.0 / total


@triton.jit(do_not_specialize=["conversations", "number", "count"])
def read_draft(
    best, index, weights, words, table, state, context, inputs, drafts, chances, z, conversations, tiles, number, count,
    hidden, size, eps,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, TILES: tl.constexpr, PRECISE: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Chooses draft `number` of each conversation, and lets the head read it. Grid: (tiles of COLUMNS columns, tiles of
    ROWS conversations). Every program chooses by itself."""
    _after_previous(DEPENDENT)
    tile = tl.program_id(0)
    m, columns = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tile * COLUMNS + tl.arange(0, COLUMNS)
    inside = m < conversations
    chosen, chance = _chosen(best, index, weights, m, conversations, tiles, ROWS, TILES)
    word = tl.load(words + chosen, mask=inside, other=0)
    if tile == 0:
        tl.store(drafts + m * count + number, word, mask=inside)
        tl.store(chances + m * count + number, chance, mask=inside)
    width = hidden + size
    of_word, squares, _ = _of_gathered(
        table, context, inputs, word, inside, columns, hidden, width, size, ROWS, COLUMNS, DEPTH, False, PRECISE
    )
    of_state, state_squares, _ = _of_gathered(
        state, context, inputs + hidden, m, inside, columns, size, width, size, ROWS, COLUMNS, DEPTH, False, PRECISE
    )
    total = of_word * tl.rsqrt(squares / hidden + eps)[:, None]
    total += of_state * tl.rsqrt(state_squares / size + eps)[:, None]
    place = m[:, None] * size + columns[None, :]
    mask = inside[:, None] & (columns < size)[None, :]
    total += tl.load(context + place, mask=mask, other=0.0).to(tl.float32)
    tl.store(z + place, _rounded(total, z.dtype.element_ty, PRECISE), mask=mask)


@triton.jit(do_not_specialize=["count"])
def store_drafts(
    best, index, weights, words, drafts, chances, slots, kept, result, tiles, count, max_drafts, start, width, unit,
    TILES: tl.constexpr, MAX: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Chooses the last draft of a conversation, and stores all of them in its slot and in the step's result, where
    probabilities are integers in parts of `unit`. Grid: (conversations,)."""
    _after_previous(DEPENDENT)
    conversation, i = tl.program_id(0), tl.arange(0, MAX)
    own = conversation + tl.arange(0, 1)
    chosen, chance = _chosen(best, index, weights, own, conversation + 1, tiles, 1, TILES)
    word = tl.load(words + chosen)
    place, last = conversation * count + i, i == count - 1
    tokens = tl.where(last, word, tl.load(drafts + place, mask=i < count - 1, other=0))
    likely = tl.where(last, chance, tl.load(chances + place, mask=i < count - 1, other=0.0))
    slot = tl.load(slots + conversation)
    tl.store(kept + slot * max_drafts + i, tokens, mask=i < max_drafts)
    out = result + conversation * width + start + i
    tl.store(out, tokens, mask=i < max_drafts)
    tl.store(out + max_drafts, (likely * unit).to(tl.int64), mask=i < max_drafts)
