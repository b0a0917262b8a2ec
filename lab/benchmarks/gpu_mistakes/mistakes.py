"""Mistakes of the GPU's kernels, as a compiler or a programmer may make them: the check at the start must reject each.
`running.py` runs kernels with one of them."""

from __future__ import annotations

from model.nn.gpu import attention_kernel, block_kernels, drafter_kernels, kernels

ROUNDED_SHARES = "_rounded(shares, value.dtype, PRECISE)"
PARTS = "part_total * share[:, None]"

MISTAKES = {
    "probabilities are truncated": ("attend", attention_kernel, ROUNDED_SHARES, "shares.to(value.dtype)"),
    "another head's keys": (
        "attend",
        attention_kernel,
        "own = (slot * KV_HEADS + kv_head)",
        "own = (slot * KV_HEADS + KV_HEADS - 1 - kv_head)",
    ),
    "a row attends to one position too many": (
        "attend",
        attention_kernel,
        "attended = (n < past)[None, :]",
        "attended = (n < past + 2)[None, :]",
    ),
    "the mask is transposed": (
        "attend",
        attention_kernel,
        "r[:, None] * rows + other[None, :]",
        "other[None, :] * rows + r[:, None]",
    ),
    "the last tile of keys is left out": (
        "attend",
        attention_kernel,
        "range(whole, stop, KEYS, num",
        "range(whole, stop - KEYS, KEYS, num",
    ),
    "the first tile of keys is left out": (
        "attend",
        attention_kernel,
        "range(begin, whole, KEYS)",
        "range(begin + KEYS, whole, KEYS)",
    ),
    "scores are one percent too large": (
        "attend",
        attention_kernel,
        "scores, PRECISE) * scale\n",
        "scores, PRECISE) * scale * 1.01\n",
    ),
    "half of each head is left out of the scores": (
        "attend",
        attention_kernel,
        "tl.trans(second), scores, PRECISE)",
        "tl.trans(second), scores, PRECISE) * 0 + scores",
    ),
    "queries of a group are mixed up": (
        "attend",
        attention_kernel,
        "place = out + (row * HEADS + head)",
        "place = out + (row * HEADS + HEADS - 1 - head)",
    ),
    "parts of the attention are not weighted": ("attend", attention_kernel, PARTS, "part_total"),
    "the rotation goes backwards": ("attend", attention_kernel, "rotated += second * ", "rotated -= second * "),
    "keys are written one position late": (
        "attend",
        attention_kernel,
        "tl.store(keys + place, new_first",
        "tl.store(keys + HEAD_DIM + place, new_first",
    ),
    "values are not written": (
        "attend",
        attention_kernel,
        "tl.store(values + wide_place, new_value, mask=wide_mask)",
        "tl.store(values + wide_place, new_value, mask=wide_mask & (n < 0)[:, None])",
    ),
    "rows are rotated to their places instead of their positions": (
        "attend",
        attention_kernel,
        "position = tl.load(positions + row, mask=own, other=0)",
        "position = n",
    ),
    "the step's own keys are those of another row": (
        "attend",
        attention_kernel,
        "row = _row_of_step(r, rows, clean, tl.program_id(2)",
        "row = _row_of_step(rows - 1 - r, rows, clean, tl.program_id(2)",
    ),
    "the norm's weight is left out": (
        "project",
        kernels,
        "weighted = values * tl.load(norm",
        "weighted = values + 0 * tl.load(norm",
    ),
    "clean rows get the adapter": ("project", kernels, "m[:, None] >= first_draft, delta", "m[:, None] >= 0, delta"),
    "the bias is left out": (
        "project",
        kernels,
        "    if BIAS:\n        total += ",
        "    if BIAS:\n        total += 0 * ",
    ),
    "a part of the depth is left out": (
        "project",
        kernels,
        "for other in range(SPLITS):",
        "for other in range(SPLITS - 1):",
    ),
    "results are truncated": (
        "project",
        kernels,
        "_rounded(total, out.dtype.element_ty, PRECISE)",
        "total.to(out.dtype.element_ty)",
    ),
    "the gate's sign is wrong": ("gate_up", kernels, "tl.exp(-gate)", "tl.exp(gate)"),
    "the last tile of tokens is left out": (
        "predict",
        kernels,
        "inside = tile < tiles\n",
        "inside = tile < tiles - 1\n",
    ),
    "tokens are counted within a tile": ("predict", kernels, "tile * COLUMNS + tl.argmax", "tl.argmax"),
    "the adapter's groups are mixed up": ("project", block_kernels, "own_a = a + group * rank * depth", "own_a = a"),
    "low and high bits are swapped": ("project", block_kernels, "= both & 15, both >> 4", "= both >> 4, both & 15"),
    "the minimum is added": ("project", block_kernels, "[None, :] - other[None, :]", "[None, :] + other[None, :]"),
    "the minimum has the scale's bits": ("project", block_kernels, "((upper >> 2) & 3) << 4", "(upper & 3) << 4"),
    "the scale lacks two bits": (
        "project",
        block_kernels,
        "scale = (low & 15) | ((upper & 3) << 4)",
        "scale = low & 15",
    ),
    "the scales of halves are swapped": (
        "project",
        block_kernels,
        "scale[None, :], other[None, :])",
        "other[None, :], scale[None, :])",
    ),
    "the fifth bit is another block's": (
        "gate_up",
        block_kernels,
        "plane >> (2 * (pair % 4))",
        "plane >> (2 * (pair % 2))",
    ),
    "the offset is off by one": (
        "predict",
        block_kernels,
        "(values - OFFSET) * scale",
        "(values - OFFSET + 1) * scale",
    ),
    "the second section begins early": ("project", block_kernels, "m, n - border,", "m, n - border + 1,"),
    "the last pair of blocks is left out": (
        "project",
        block_kernels,
        "share, tl.cdiv(depth, 64))",
        "share, depth // 64 - 1)",
    ),
    "weights are truncated": (
        "project",
        block_kernels,
        "return _rounded(values, KIND, PRECISE)",
        "return values.to(KIND)",
    ),
}
"""For each mistake an operation that shows it, the module, what stands there, and what stands there instead."""

DRAFTER_MISTAKES = {
    "states are not normalized": (
        "read_features",
        drafter_kernels,
        "tl.load(weight + k, mask=k < depth, other=0.0)",
        "(1 + 0 * tl.load(weight + k, mask=k < depth, other=0.0))",
    ),
    "tapped states have another length": (
        "read_features",
        drafter_kernels,
        'cache_modifier=".cg") * factor * factor',
        'cache_modifier=".cg") * factor',
    ),
    "the second tapped layer is the first": (
        "read_features",
        drafter_kernels,
        "            second, norm, features + hidden,",
        "            first, norm, features + hidden,",
    ),
    "the token is another conversation's": ("read_features", drafter_kernels, "last + slot,", "last + m,"),
    "rows attend to another conversation's": (
        "attend_block",
        drafter_kernels,
        "same = (m // BLOCK)[:, None] == (m // BLOCK)[None, :]",
        "same = (m // BLOCK)[:, None] >= (m // BLOCK)[None, :]",
    ),
    "heads have the first head's keys": (
        "attend_block",
        drafter_kernels,
        "own = HEADS * HEAD_DIM + head",
        "own = head",
    ),
    "the residual is left out": (
        "attend_block",
        drafter_kernels,
        "total += tl.load(residual + row",
        "total += 0 * tl.load(residual + row",
    ),
    "rows of a block are scored as if it were shorter": (
        "score",
        drafter_kernels,
        "m // count * block",
        "m // count * count",
    ),
    "logits are not normalized": (
        "score",
        drafter_kernels,
        "squares / depth + eps)[:, None]\n    mask",
        "squares * 0 + 1)[:, None]\n    mask",
    ),
    "far words are compared": ("compare", drafter_kernels, "denoised > top - near", "denoised > top - 2 * near"),
    "what was read does not count": ("compare", drafter_kernels, "+ of_read * read", "+ 0 * read"),
    "words are counted within a tile": (
        "compare",
        drafter_kernels,
        "scores == most, n,",
        "scores == most, n - tile * COLUMNS,",
    ),
    "the last tiles are not merged": (
        "read_draft",
        drafter_kernels,
        "for start in range(0, tiles, TILES):",
        "for start in range(0, tiles - TILES, TILES):",
    ),
    "the state before is left out": (
        "read_draft",
        drafter_kernels,
        "total += of_state * tl.rsqrt",
        "total += 0 * of_state * tl.rsqrt",
    ),
    "the context is left out": (
        "read_draft",
        drafter_kernels,
        "total += tl.load(context + place",
        "total += 0 * tl.load(context + place",
    ),
    "drafts go to the wrong slot": (
        "store_drafts",
        drafter_kernels,
        "kept + slot * max_drafts",
        "kept + conversation * max_drafts",
    ),
    "earlier drafts are lost": (
        "store_drafts",
        drafter_kernels,
        "tl.load(drafts + place, mask=i < count - 1, other=0)",
        "0 * i",
    ),
}
"""The same of the kernels that draft."""
