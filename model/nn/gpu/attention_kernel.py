"""The Triton kernel of a step's attention, from the fused projections to its result: it rotates queries and keys, and
writes the keys and values of the step's rows to their slots on the way. `torch_operations.py` says in plain PyTorch
what it computes, and `kernels.py` what `PRECISE` means.
"""

# mypy: ignore-errors

import triton
import triton.language as tl

from model.nn.gpu.kernels import _after_previous, _dot, _rounded


@triton.jit
def _rotated(
    start, weight, position, cos, sin, inside, d, eps, HEAD_DIM: tl.constexpr, HEAD_NORM: tl.constexpr
):  # fmt: skip
    """The two halves of some heads [rows, half], normalized and rotated to their positions, in float32. The first half
    of `sin` is negated."""
    half: tl.constexpr = HEAD_DIM // 2
    first = tl.load(start, mask=inside, other=0.0).to(tl.float32)
    second = tl.load(start + half, mask=inside, other=0.0).to(tl.float32)
    if HEAD_NORM:
        scale = tl.rsqrt(tl.sum(first * first + second * second, 1) / HEAD_DIM + eps)[:, None]
        first *= scale * tl.load(weight, mask=inside, other=0.0).to(tl.float32)
        second *= scale * tl.load(weight + half, mask=inside, other=0.0).to(tl.float32)
    angle = position[:, None] * HEAD_DIM + d[None, :]
    rotated = first * tl.load(cos + angle, mask=inside, other=0.0).to(tl.float32)
    rotated += second * tl.load(sin + angle, mask=inside, other=0.0).to(tl.float32)
    second *= tl.load(cos + half + angle, mask=inside, other=0.0).to(tl.float32)
    second += first * tl.load(sin + half + angle, mask=inside, other=0.0).to(tl.float32)
    return rotated, second


@triton.jit
def _row_of_step(r, rows, clean, conversation, conversations):
    """The row of the step that is row r of a conversation: the `clean` first rows of each come first."""
    return r + tl.where(r < clean, conversation * clean, conversations * clean + conversation * (rows - clean) - clean)


@triton.jit
def _keys_values(
    fused, positions, cos, sin, head_norm, keys, values, n, past, rows, clean, tile, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, HALF: tl.constexpr, WIDTH: tl.constexpr,
    HEAD_NORM: tl.constexpr, NEW: tl.constexpr, PRECISE: tl.constexpr,
):  # fmt: skip
    """The two halves of the keys at positions n, and their values. Those of the step's own rows (`NEW`) come from the
    fused projections, and the first tile of queries writes them to the slot."""
    half: tl.constexpr = HEAD_DIM // 2
    kind = keys.dtype.element_ty
    d, wide = tl.arange(0, HALF), tl.arange(0, WIDTH)
    old = n < past
    mask, wide_mask = old[:, None] & (d < half)[None, :], old[:, None] & (wide < HEAD_DIM)[None, :]
    place, wide_place = n[:, None] * HEAD_DIM + d[None, :], n[:, None] * HEAD_DIM + wide[None, :]
    first = tl.load(keys + place, mask=mask, other=0.0)
    second = tl.load(keys + half + place, mask=mask, other=0.0)
    value = tl.load(values + wide_place, mask=wide_mask, other=0.0)
    if NEW:
        kv_head = tl.program_id(0) // (tl.num_programs(0) // KV_HEADS)
        r = n - past
        own = (r >= 0) & (r < rows)
        row = _row_of_step(r, rows, clean, tl.program_id(2), tl.num_programs(2))
        mask, wide_mask = own[:, None] & (d < half)[None, :], own[:, None] & (wide < HEAD_DIM)[None, :]
        start = fused + row * ((HEADS + 2 * KV_HEADS) * HEAD_DIM) + (HEADS + kv_head) * HEAD_DIM
        weight = head_norm
        if HEAD_NORM:
            weight = head_norm + (r * 0 + (HEADS + kv_head) * HEAD_DIM)[:, None] + d[None, :]
        position = tl.load(positions + row, mask=own, other=0)
        new_first, new_second = _rotated(
            start[:, None] + d[None, :], weight, position, cos, sin, mask, d, eps, HEAD_DIM, HEAD_NORM
        )
        new_first, new_second = _rounded(new_first, kind, PRECISE), _rounded(new_second, kind, PRECISE)
        new_value = tl.load(start[:, None] + KV_HEADS * HEAD_DIM + wide[None, :], mask=wide_mask, other=0.0)
        if tile == 0:
            tl.store(keys + place, new_first, mask=mask)
            tl.store(keys + half + place, new_second, mask=mask)
            tl.store(values + wide_place, new_value, mask=wide_mask)
        first = tl.where(own[:, None], new_first, first)
        second = tl.where(own[:, None], new_second, second)
        value = tl.where(own[:, None], new_value, value)
    return first, second, value


@triton.jit
def _attend_to(
    first_query, second_query, first, second, value, n, past, rows, r, new, scale, highest, weight, total,
    ROWS: tl.constexpr, KEYS: tl.constexpr, NEW: tl.constexpr, PRECISE: tl.constexpr,
):  # fmt: skip
    """Adds the keys at positions n to the sums of an online softmax (FlashAttention, arXiv 2205.14135)."""
    scores = _dot(first_query, tl.trans(first), tl.zeros((ROWS, KEYS), tl.float32), PRECISE)
    scores = _dot(second_query, tl.trans(second), scores, PRECISE) * scale
    attended = (n < past)[None, :]
    if NEW:
        other = n - past
        own = (r[:, None] < rows) & (other[None, :] >= 0) & (other[None, :] < rows)
        attended = attended | (tl.load(new + r[:, None] * rows + other[None, :], mask=own, other=0) != 0)
    scores = tl.where(attended, scores, float("-inf"))
    higher = tl.maximum(highest, tl.max(scores, 1))
    finite = tl.where(higher == float("-inf"), 0.0, higher)
    shares = tl.exp(scores - finite[:, None])
    fade = tl.exp(highest - finite)
    total = _dot(_rounded(shares, value.dtype, PRECISE), value, total * fade[:, None], PRECISE)
    return higher, weight * fade + tl.sum(shares, 1), total


@triton.jit(do_not_specialize=["rows", "clean"])
def attend(
    fused, positions, cos, sin, query_scale, head_norm, keys, values, past_length, slots, new, out, partials, counters,
    rows, clean, capacity, max_splits, scale, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, HALF: tl.constexpr, WIDTH: tl.constexpr,
    ROWS: tl.constexpr, KEYS: tl.constexpr, SPLIT: tl.constexpr, HEAD_NORM: tl.constexpr, QUERY_SCALE: tl.constexpr,
    PRECISE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Rotation, cache and attention of a tile of a conversation's queries over SPLIT positions of its slot. Grid:
    (KV_HEADS × tiles, max_splits, conversations).

    The query heads that share keys lie below each other: query q is that of row q // GROUP and of head q % GROUP of the
    group. So they load their keys together, and a step of few rows fills a tile.

    Reads on the device how many positions there are; programs after them end at once. Parts begin at fixed positions,
    and so do the tiles of keys, whether they come from the cache or from this step: a row's result does not depend on
    how many rows follow it. The last program that arrives merges the parts (flash-decoding). All rows attend to the
    first `past_length` positions; `new` says which rows attend to which.
    """
    _after_previous(DEPENDENT)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    half: tl.constexpr = HEAD_DIM // 2
    split, conversation = tl.program_id(1), tl.program_id(2)
    tiles = tl.num_programs(0) // KV_HEADS
    kv_head, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    past, slot = tl.load(past_length + conversation), tl.load(slots + conversation)
    end = past + rows
    if split * SPLIT < end:
        m, d, wide = tl.arange(0, ROWS), tl.arange(0, HALF), tl.arange(0, WIDTH)
        r, head = (tile * ROWS + m) // GROUP, kv_head * GROUP + (tile * ROWS + m) % GROUP
        row = _row_of_step(r, rows, clean, conversation, tl.num_programs(2))
        kind = out.dtype.element_ty
        inside = (r < rows)[:, None] & (d < half)[None, :]
        position = tl.load(positions + row, mask=r < rows, other=0)
        norm = head_norm
        if HEAD_NORM:
            norm = head_norm + head[:, None] * HEAD_DIM + d[None, :]
        start = fused + row * ((HEADS + 2 * KV_HEADS) * HEAD_DIM) + head * HEAD_DIM
        first_query, second_query = _rotated(
            start[:, None] + d[None, :], norm, position, cos, sin, inside, d, eps, HEAD_DIM, HEAD_NORM
        )
        if QUERY_SCALE:
            factor = tl.load(query_scale + position).to(tl.float32)[:, None]
            first_query *= factor
            second_query *= factor
        first_query, second_query = _rounded(first_query, kind, PRECISE), _rounded(second_query, kind, PRECISE)
        own = (slot * KV_HEADS + kv_head) * capacity * HEAD_DIM
        highest = tl.full((ROWS,), float("-inf"), tl.float32)
        weight, total = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS, WIDTH), tl.float32)
        begin, stop = split * SPLIT, min(split * SPLIT + SPLIT, end)
        whole = max(begin, min(stop, past // KEYS * KEYS))
        for at in range(begin, whole, KEYS):
            n = at + tl.arange(0, KEYS)
            first, second, value = _keys_values(
                fused, positions, cos, sin, head_norm, keys + own, values + own, n, past, rows, clean, tile, eps,
                HEADS, KV_HEADS, HEAD_DIM, HALF, WIDTH, HEAD_NORM, False, PRECISE,
            )  # fmt: skip
            highest, weight, total = _attend_to(
                first_query, second_query, first, second, value, n, past, rows, r, new, scale, highest, weight, total,
                ROWS, KEYS, False, PRECISE,
            )  # fmt: skip
        for at in tl.range(whole, stop, KEYS, num_stages=1):
            n = at + tl.arange(0, KEYS)
            first, second, value = _keys_values(
                fused, positions, cos, sin, head_norm, keys + own, values + own, n, past, rows, clean, tile, eps,
                HEADS, KV_HEADS, HEAD_DIM, HALF, WIDTH, HEAD_NORM, True, PRECISE,
            )  # fmt: skip
            highest, weight, total = _attend_to(
                first_query, second_query, first, second, value, n, past, rows, r, new, scale, highest, weight, total,
                ROWS, KEYS, True, PRECISE,
            )  # fmt: skip
        count = tl.cdiv(end, SPLIT)
        place = out + (row * HEADS + head)[:, None] * HEAD_DIM + wide[None, :]
        inside = (r < rows)[:, None] & (wide < HEAD_DIM)[None, :]
        if count == 1:
            tl.store(place, _rounded(total / weight[:, None], kind, PRECISE), mask=inside)
        else:
            size: tl.constexpr = ROWS * (WIDTH + 2)
            number = conversation * tl.num_programs(0) + tl.program_id(0)
            parts = partials + number * max_splits * size
            in_total = m[:, None] * WIDTH + wide[None, :]
            own_part = parts + split * size
            tl.store(own_part + in_total, total)
            tl.store(own_part + ROWS * WIDTH + m, highest)
            tl.store(own_part + ROWS * (WIDTH + 1) + m, weight)
            tl.debug_barrier()
            if tl.atomic_add(counters + number, 1, sem="acq_rel") == count - 1:
                highest = tl.full((ROWS,), float("-inf"), tl.float32)
                weight, total = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS, WIDTH), tl.float32)
                for piece in range(count):
                    part = parts + piece * size
                    part_highest = tl.load(part + ROWS * WIDTH + m, cache_modifier=".cg")
                    higher = tl.maximum(highest, part_highest)
                    finite = tl.where(higher == float("-inf"), 0.0, higher)
                    fade, share = tl.exp(highest - finite), tl.exp(part_highest - finite)
                    part_weight = tl.load(part + ROWS * (WIDTH + 1) + m, cache_modifier=".cg")
                    weight = weight * fade + part_weight * share
                    part_total = tl.load(part + in_total, cache_modifier=".cg")
                    total = total * fade[:, None] + part_total * share[:, None]
                    highest = higher
                tl.store(place, _rounded(total / weight[:, None], kind, PRECISE), mask=inside)
                tl.store(counters + number, 0)
