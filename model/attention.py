"""Attention of a few new rows over everything a conversation has said, and the masks that say who sees whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from model.families import Attention


def causal_mask(rows: int, past: int) -> Tensor:
    """Who sees whom when `rows` new tokens follow `past` old ones: [rows, past + rows] bool, True = sees.

    A row sees every old token, the new ones before it, and itself.
    """
    return torch.ones(rows, past + rows, dtype=torch.bool).tril_(past)


def block_mask(rows: int, past: int, size: int) -> Tensor:
    """The same where blocks begin at whole multiples of `size`: a row sees all of its own block and of those before.
    With `size` 1 this is `causal_mask`."""
    block = torch.arange(past + rows) // size
    return block <= block[past:, None]


def text_mask(attention: Attention, rows: int, past: int, size: int) -> Tensor:
    """Who sees whom in plain text of a family that looks so."""
    if attention == "causal":
        return causal_mask(rows, past)
    return block_mask(rows, past, size) if attention == "block" else torch.ones(rows, past + rows, dtype=torch.bool)


def blocks_mask(text: Tensor, sizes: Sequence[int], inside: Literal["causal", "bidirectional"]) -> Tensor:
    """Who sees whom when blocks of `sizes` stand behind finished text: [rows, rows] bool.

    A block sees the text, the blocks before it, and of itself what `inside` says.

    Args:
        text: [n, n] bool, how the text's own rows see each other.
    """
    number = torch.repeat_interleave(torch.tensor([len(text), *sizes]))
    same = number[:, None] == number
    sees = (number[:, None] > number) | (same if inside == "bidirectional" else same.tril_())
    sees[: len(text), : len(text)] = text
    return sees


def mask_behind(past: Tensor, sees: Tensor, length: int) -> Tensor:
    """Who sees whom in a store of `length` keys, of which those before `past` are text and those from there on the new
    rows: [rows, length] bool. Without a word from the host, where `past` lies on the device.

    Args:
        past: [1] int64.
        sees: [rows, rows] bool, which new rows each row sees.
    """
    place = torch.arange(length, device=sees.device) - past
    new = sees[:, place.clamp(0, len(sees) - 1)] & (place >= 0) & (place < len(sees))
    return new | (place < 0)


def attend_many(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Grouped-query attention of several texts.

    The query heads that share a key head are laid out as rows of one small problem, so keys are never copied out
    to every query head.

    Args:
        query: [n, rows, heads, head_dim].
        key, value: [n, kv_heads, seen, head_dim].
        mask: [n, rows, seen] bool, or None when every row sees everything.

    Returns:
        [n, rows, heads × head_dim].
    """
    n, rows, heads, _ = query.shape
    group = heads // key.shape[1]
    spread = None
    if mask is not None:
        spread = mask[:, None, None].expand(n, 1, group, rows, -1).reshape(n, 1, group * rows, -1)
    out = scaled_dot_product_attention(_folded(query, key.shape[1]), key, value, attn_mask=spread)
    return _unfolded(out, rows).flatten(-2)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """`attend_many` of one text, without the first dimension."""
    return attend_many(query[None], key[None], value[None], None if mask is None else mask[None])[0]


def _folded(query: Tensor, kv_heads: int) -> Tensor:
    """[n, rows, heads, head_dim] → [n, kv_heads, group × rows, head_dim]."""
    n, rows, heads, size = query.shape
    group = heads // kv_heads
    return query.view(n, rows, kv_heads, group, size).permute(0, 2, 3, 1, 4).reshape(n, kv_heads, group * rows, size)


def _unfolded(folded: Tensor, rows: int) -> Tensor:
    """The way back: [n, kv_heads, group × rows, size] → [n, rows, heads, size]."""
    n, kv_heads, grouped, size = folded.shape
    group = grouped // rows
    return folded.view(n, kv_heads, group, rows, size).permute(0, 3, 1, 2, 4).reshape(n, rows, kv_heads * group, size)


def attend_split(query: Tensor, key: Tensor, value: Tensor, past: int, sees: Tensor) -> Tensor:
    """`attend` where every row sees all of the first `past` keys: those in one unmasked problem for a flash kernel,
    the few new ones in a small masked one, merged by their log-sums-of-exponentials (as flash-decoding merges splits).

    Args:
        past: keys that all rows see, at least one.
        sees: [rows, rows] bool, which new rows each row sees.
    """
    rows, heads, size = query.shape
    kv_heads = key.shape[0]
    old, old_log = _flash(query, key[:, :past], value[:, :past])
    folded = _folded(query[None].float(), kv_heads)[0]
    scores = folded @ key[:, past:].float().transpose(-1, -2) / size**0.5
    scores = scores.masked_fill(~sees.repeat(heads // kv_heads, 1), -torch.inf)
    new_log = scores.logsumexp(-1, keepdim=True)
    new = _unfolded(((scores - new_log).exp() @ value[:, past:].float())[None], rows)[0]
    new_log = _unfolded(new_log[None], rows)[0, ..., 0]
    share = torch.sigmoid(old_log - new_log)[..., None]  # e^a / (e^a + e^b)
    merged: Tensor = (old.float() * share + new * (1 - share)).to(query.dtype).reshape(rows, heads * size)
    return merged


def splits(query: Tensor) -> bool:
    """Whether `attend_split` has a flash kernel for these queries: on GPUs from Ampere on, in bfloat16."""
    size = query.shape[-1]
    fits = query.is_cuda and query.dtype == torch.bfloat16 and size <= 256 and size % 8 == 0
    return fits and torch.cuda.get_device_capability(query.device)[0] >= 8


FlashAttn = Callable[..., tuple[Tensor, Tensor, Tensor]]
"""`flash_attn_func`: query [n, rows, heads, head_dim], key, value [n, seen, kv_heads, head_dim]; with
`return_attn_probs` → out as the query, log-sum-exp [n, heads, rows] float32, and what is of no use here."""


@cache
def flash_attn_kernel() -> FlashAttn | None:
    """flash-attn's kernel where it is installed: `pip install "rejoinder[gpu]"`."""
    try:
        from flash_attn import flash_attn_func
    except ImportError:
        return None
    kernel: FlashAttn = flash_attn_func
    return kernel


def through_flash_attn(kernel: FlashAttn, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Unmasked attention by flash-attn: [rows, heads, head_dim], [kv_heads, seen, head_dim] twice → [rows, heads,
    head_dim], and the log-sum-exp of its scores [rows, heads]."""
    out, log, _ = kernel(query[None], key.transpose(0, 1)[None], value.transpose(0, 1)[None], return_attn_probs=True)
    return out[0], log[0].transpose(0, 1)


def _flash(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Unmasked attention [rows, heads, head_dim], and the log-sum-exp of its scores [rows, heads]."""
    own = flash_attn_kernel() if query.is_cuda else None
    if own is not None:
        return through_flash_attn(own, query, key, value)
    aten, rows = torch.ops.aten, query.shape[0]
    kernel = (
        aten._scaled_dot_product_flash_attention if query.is_cuda else aten._scaled_dot_product_flash_attention_for_cpu
    )
    out, log = kernel(_folded(query[None], key.shape[0]), key[None], value[None])[:2]
    return _unfolded(out, rows)[0], _unfolded(log[..., None], rows)[0, ..., 0].float()
