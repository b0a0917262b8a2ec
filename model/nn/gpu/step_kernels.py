"""Triton kernels for what a step does besides layers and head: one before the layers, and one after the head.
`engine/fused_bookkeeping.py` launches them; `engine/batch_step.py` and `engine/device_state.py` say in plain PyTorch
what they compute, in about 60 kernels."""

# mypy: ignore-errors

import triton
import triton.language as tl

from model.nn.gpu.kernels import _after_previous


@triton.jit
def begin(
    slots, past_length, last, drafts, copied, conversation_of, place_of, token_of, offset_of, table, mask_embedding,
    tokens, positions, row_slots, cells, past, x, hidden, max_drafts, max_copies, num_drafts, rows_each,
    BLOCK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Where each row of a step is, and its embedding. Grid: (rows,).

    Of each row: its conversation, its place among its conversation's rows, the number of its token (0 is the last
    token, then come drafts and copied ones, -1 is a mask), and how far its position is from the last token's.
    """
    _after_previous(DEPENDENT)
    row = tl.program_id(0)
    conversation = tl.load(conversation_of + row)
    number, place = tl.load(token_of + row), tl.load(place_of + row)
    slot = tl.load(slots + conversation)
    before = tl.load(past_length + slot)
    token = tl.load(last + slot)
    if number > num_drafts:
        token = tl.load(copied + slot * max_copies + number - num_drafts - 1)
    elif number > 0:
        token = tl.load(drafts + slot * max_drafts + number - 1)
    tl.store(tokens + row, token)
    tl.store(positions + row, before + tl.load(offset_of + row))
    tl.store(row_slots + row, slot)
    tl.store(cells + row, before + place)
    if place == 0:
        tl.store(past + conversation, before)
    for start in range(0, hidden, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < hidden
        if number < 0:
            part = tl.load(mask_embedding + column, mask=inside, other=0.0)
        else:
            part = tl.load(table + token * hidden + column, mask=inside, other=0.0)
        tl.store(x + row * hidden + column, part, mask=inside)


@triton.jit
def settle(
    slots, past_before, tokens, predicted, confidence, drafting, past_length, last, drafts, copied, history,
    keys_values, result, newest_row, batch, num_slots, capacity, history_length, unit,
    K: tl.constexpr, C: tl.constexpr, MAX_DRAFTS: tl.constexpr, MAX_COPIES: tl.constexpr, MAX_TOKENS: tl.constexpr,
    BRANCHES: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, DEPTH: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Acceptance, what the state keeps, and look-up; and the keys and values of accepted copies go where those of
    drafts were. Grid: (conversations, 1 + 2 × layers × KV_HEADS if copies may have to move, else 1).

    Every program finds what is accepted by itself, from what no program changes; the first one of each conversation
    writes the state. The last slot is nobody's: its text does not grow.
    """
    _after_previous(DEPENDENT)
    conversation, part = tl.program_id(0), tl.program_id(1)
    i = tl.arange(0, WIDTH)
    slot, past = tl.load(slots + conversation), tl.load(past_before + conversation)
    first = conversation * (1 + K + C)
    may = tl.load(drafting + slot) != 0
    along_drafts = tl.load(predicted + first + i, mask=i <= K, other=0)
    shifted = tl.where(i == 0, 0, K + i)
    along_copies = tl.load(predicted + first + shifted, mask=i <= C, other=0)
    draft = tl.load(tokens + first + 1 + i, mask=i < K, other=0)
    copy = tl.load(tokens + first + 1 + K + i, mask=i < C, other=0)
    by_draft = tl.where(may, tl.min(tl.where((i < K) & (draft != along_drafts), i, K)), 0)
    by_copy = tl.where(may, tl.min(tl.where((i < C) & (copy != along_copies), i, C)), 0)
    use_copies = by_copy > by_draft
    accepted = tl.where(use_copies, by_copy, by_draft)
    if part == 0:
        base = tl.where(use_copies, along_copies, along_drafts)
        out = result + conversation * (2 + MAX_TOKENS + 2 * MAX_DRAFTS)
        tl.store(out, accepted.to(tl.int64))
        tl.store(out + 1, use_copies.to(tl.int64))
        tl.store(out + 2 + i, base, mask=i < MAX_TOKENS)
        next_draft, likely = tl.zeros((WIDTH,), tl.int64), tl.zeros((WIDTH,), tl.int64)
        if BRANCHES:
            branch = batch * (1 + K + C) + (conversation * (K + 1) + by_draft) * K + i
            next_draft = tl.load(predicted + branch, mask=i < tl.where(use_copies, 0, K), other=0)
            likely = (tl.load(confidence + branch, mask=i < K, other=0.0) * unit).to(tl.int64)
        tl.store(out + 2 + MAX_TOKENS + i, next_draft, mask=i < MAX_DRAFTS)
        tl.store(out + 2 + MAX_TOKENS + MAX_DRAFTS + i, likely, mask=i < MAX_DRAFTS)
        tl.store(drafts + slot * MAX_DRAFTS + i, next_draft, mask=i < MAX_DRAFTS)
        row = tl.where(use_copies, accepted + K, accepted)
        tl.store(newest_row + conversation, (first + row).to(tl.int64))
        tl.store(last + slot, tl.load(predicted + first + row))
        text = history + slot * history_length
        tl.store(text + past + 1 + i, base, mask=i < MAX_TOKENS)
        now = tl.where(slot == num_slots - 1, 0, past + accepted + 1)
        tl.store(past_length + slot, now)
        if MAX_COPIES > 0:
            tl.debug_barrier()  # the text is complete before any thread searches it
            end = now - 2
            one = tl.load(text + tl.maximum(end, 0))
            two = tl.load(text + tl.maximum(end + 1, 0))
            three = tl.load(text + tl.maximum(end + 2, 0))
            previous = tl.full((BLOCK,), -1, tl.int64)
            for start in range(0, end, BLOCK):
                place = start + tl.arange(0, BLOCK)
                inside = place < end
                same = inside & (tl.load(text + place, mask=inside, other=-1) == one)
                same &= tl.load(text + place + 1, mask=inside, other=-1) == two
                same &= tl.load(text + place + 2, mask=inside, other=-1) == three
                previous = tl.where(same, place.to(tl.int64), previous)
            found = tl.max(previous, 0)
            follows = found + 3 + i
            known = (follows <= tl.where(found < 0, -1, now)) & (i < MAX_COPIES)
            tl.store(copied + slot * MAX_COPIES + i, tl.load(text + follows, mask=known, other=0), mask=i < MAX_COPIES)
    elif use_copies:
        which = (part - 1) // KV_HEADS
        block = keys_values + ((which * num_slots + slot) * KV_HEADS + (part - 1) % KV_HEADS) * capacity * HEAD_DIM
        d = tl.arange(0, DEPTH)
        inside = (i[:, None] < C) & (d[None, :] < HEAD_DIM)
        place = (past + 1 + i)[:, None] * HEAD_DIM + d[None, :]
        moved = tl.load(block + place + K * HEAD_DIM, mask=inside, other=0.0)
        tl.debug_barrier()  # places overlap: all are read before one is written
        tl.store(block + place, moved, mask=inside)
