"""A Triton kernel that chooses the tokens of a step from its logits. `engine/token_choice.py` launches it, and says in
plain PyTorch what it computes, in about 60 kernels."""

# mypy: ignore-errors

import triton
import triton.language as tl

from model.nn.gpu.kernels import _after_previous


@triton.jit
def _distance(logits, n, inside, highest, temperature):
    """How far tokens are below the likeliest one, in nats after the temperature; its bits are ordered as it is."""
    value = tl.load(logits + n, mask=inside, other=float("-inf"))
    return tl.abs((value - highest) / temperature)


@triton.jit
def _reached(logits, columns, highest, temperature, most, wanted, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """The bits of the least distance within which there are `wanted` tokens, or so much probability (not normalized),
    among those that are no farther than `most`: by bisection."""
    low, high = tl.full((), 0, tl.int32), most
    for _ in range(31):
        middle = low + (high - low) // 2
        total = tl.zeros((), tl.float32)
        for start in range(0, columns, BLOCK):
            n = start + tl.arange(0, BLOCK)
            far = _distance(logits, n, n < columns, highest, temperature)
            near = (n < columns) & (far.to(tl.int32, bitcast=True) <= middle)
            total += tl.sum(tl.where(near, 1.0 if COUNT else tl.exp(-far), 0.0), 0)
        enough = total >= wanted
        high = tl.where(enough, middle, high)
        low = tl.where(enough, low, tl.minimum(middle + 1, high))
    return high


@triton.jit
def choose(
    all_logits, slots, positions, masks, rules, lowered, by, temperatures, top_ks, top_ps, num_tops, uniforms,
    tokens, confidence, scores, columns, words, num_positions, clean,
    TOP: tl.constexpr, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """The token of a row, its probability among those that it may choose, and its scores. Grid: (rows,). Logits of
    tokens that are not allowed become -∞ in place. A row is read several times, from the GPU's cache."""
    _after_previous(DEPENDENT)
    row = tl.program_id(0)
    logits, is_clean = all_logits + row.to(tl.int64) * columns, row < clean
    slot = tl.load(slots + row)
    rule, lower, less = tl.full((), -1, tl.int64), tl.full((), -1, tl.int64), tl.zeros((), tl.float32)
    temperature, num_top = tl.zeros((), tl.float32), tl.full((), 0, tl.int64)
    if is_clean:
        rule, lower, less = tl.load(rules + row), tl.load(lowered + row), tl.load(by + row)
        temperature, num_top = tl.load(temperatures + slot), tl.load(num_tops + slot)
    less = tl.where(lower >= 0, less, 0.0)
    mask, lower_mask = masks + tl.maximum(rule, 0) * words, masks + tl.maximum(lower, 0) * words
    best, where = tl.full((BLOCK,), float("-inf"), tl.float32), tl.full((BLOCK,), 0, tl.int32)
    for start in range(0, columns, BLOCK):
        n = start + tl.arange(0, BLOCK)
        inside = n < columns
        value = tl.load(logits + n, mask=inside, other=float("-inf"))
        bits = tl.load(lower_mask + n // 32, mask=inside, other=0) >> (n % 32) & 1
        value -= less * bits
        bits = tl.load(mask + n // 32, mask=inside, other=0) >> (n % 32) & 1
        allowed = tl.where(rule >= 0, bits, tl.where((n == -2 - rule) | (rule == -1), 1, 0)) != 0
        value = tl.where(allowed, value, float("-inf"))
        tl.store(logits + n, value, mask=inside)
        where = tl.where(value > best, n, where)
        best = tl.maximum(best, value)
    highest = tl.max(best, 0)
    token = tl.min(tl.where(best == highest, where, 2147483647), 0)
    tl.debug_barrier()  # all logits are stored before any thread reads those of others
    total = tl.zeros((), tl.float32)
    for start in range(0, columns, BLOCK):
        n = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.exp(tl.load(logits + n, mask=n < columns, other=float("-inf")) - highest), 0)
    if temperature > 0:
        k, p = tl.load(top_ks + slot), tl.load(top_ps + slot)
        farthest = tl.full((), 2139095039, tl.int32)  # the largest finite number: tokens at ∞ are not allowed
        if k > 0:
            farthest = _reached(logits, columns, highest, temperature, farthest, k.to(tl.float32), True, BLOCK)
        mass = tl.zeros((), tl.float32)
        for start in range(0, columns, BLOCK):
            n = start + tl.arange(0, BLOCK)
            far = _distance(logits, n, n < columns, highest, temperature)
            near = (n < columns) & (far.to(tl.int32, bitcast=True) <= farthest)
            mass += tl.sum(tl.where(near, tl.exp(-far), 0.0), 0)
        if p < 1:
            farthest = _reached(logits, columns, highest, temperature, farthest, p * mass, False, BLOCK)
            mass = tl.zeros((), tl.float32)
            for start in range(0, columns, BLOCK):
                n = start + tl.arange(0, BLOCK)
                far = _distance(logits, n, n < columns, highest, temperature)
                near = (n < columns) & (far.to(tl.int32, bitcast=True) <= farthest)
                mass += tl.sum(tl.where(near, tl.exp(-far), 0.0), 0)
        target = tl.load(uniforms + slot * num_positions + tl.load(positions + row) + 1) * mass
        before, found, last = tl.zeros((), tl.float32), tl.full((), 2147483647, tl.int32), tl.full((), 0, tl.int32)
        for start in range(0, columns, BLOCK):
            n = start + tl.arange(0, BLOCK)
            far = _distance(logits, n, n < columns, highest, temperature)
            near = (n < columns) & (far.to(tl.int32, bitcast=True) <= farthest)
            share = tl.where(near, tl.exp(-far), 0.0)
            passed = near & (before + tl.cumsum(share, 0) > target)
            found = tl.minimum(found, tl.min(tl.where(passed, n, 2147483647), 0))
            last = tl.maximum(last, tl.max(tl.where(near, n, 0), 0))
            before += tl.sum(share, 0)
        token = tl.minimum(found, last)  # a sum may be rounded down below the target
    value = tl.load(logits + token)
    tl.store(tokens + row, token.to(tl.int64))
    chance = value - highest - tl.log(total)
    tl.store(confidence + row, tl.exp(chance))
    if num_top > 0:
        out = scores + row * (1 + 2 * TOP)
        tl.store(out, chance.to(tl.int32, bitcast=True))
        newest, place = tl.full((), float("inf"), tl.float32), tl.full((), -1, tl.int32)
        for number in range(num_top.to(tl.int32) - 1):
            best, where = tl.full((BLOCK,), float("-inf"), tl.float32), tl.full((BLOCK,), 0, tl.int32)
            for start in range(0, columns, BLOCK):
                n = start + tl.arange(0, BLOCK)
                other = tl.load(logits + n, mask=n < columns, other=float("-inf"))
                is_lower = (other < newest) | ((other == newest) & (n > place))
                other = tl.where(is_lower, other, float("-inf"))
                where = tl.where(other > best, n, where)
                best = tl.maximum(best, other)
            newest = tl.max(best, 0)
            place = tl.min(tl.where(best == newest, where, 2147483647), 0)
            tl.store(out + 1 + number, (newest - highest - tl.log(total)).to(tl.int32, bitcast=True))
            tl.store(out + 1 + TOP + number, place)
