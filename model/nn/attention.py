"""Attention of a few new rows over a conversation's cached keys, and the attention masks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from model.checkpoint.architectures import Attention
from model.nn.device import is_ampere_or_newer


def causal_mask(rows: int, past: int) -> Tensor:
    """Causal mask of `rows` new tokens after `past` cached ones: [rows, past + rows] bool, True = attends.

    A row attends to every cached token, to the new ones before it, and to itself.
    """
    return torch.ones(rows, past + rows, dtype=torch.bool).tril_(past)


def block_causal_mask(rows: int, past: int, size: int, first: int = 0) -> Tensor:
    """Block-causal mask: a row attends to all of its own block and to earlier blocks. Blocks begin at multiples of
    `size`, counted from position `first`. With `size` 1 this is `causal_mask`."""
    block = (torch.arange(past + rows) - first) // size
    return block <= block[past:, None]


def text_mask(attention: Attention, rows: int, past: int, size: int, first: int = 0) -> Tensor:
    """Mask of plain text in a family with this kind of attention: [rows, past + rows] bool. For `size` and `first` see
    `block_causal_mask`."""
    if attention == "causal":
        return causal_mask(rows, past)
    if attention == "block":
        return block_causal_mask(rows, past, size, first)
    return torch.ones(rows, past + rows, dtype=torch.bool)


def denoising_mask(text: Tensor, sizes: Sequence[int], inside: Literal["causal", "bidirectional"]) -> Tensor:
    """Mask of finished text followed by blocks of `sizes`: [rows, rows] bool.

    A block attends to the text and to the blocks before it. `inside` is the attention within a block.

    Args:
        text: [n, n] bool, the mask of the text's own rows.
    """
    number = torch.repeat_interleave(torch.tensor([len(text), *sizes]))
    same = number[:, None] == number
    mask = (number[:, None] > number) | (same if inside == "bidirectional" else same.tril_())
    mask[: len(text), : len(text)] = text
    return mask


def static_cache_mask(past: Tensor, new: Tensor, length: int) -> Tensor:
    """Masks over static caches of `length` keys, each of which holds cached tokens followed by the new rows:
    [texts, rows, length] bool. If `past` is on the device, this needs no synchronization with the host.

    Args:
        past: [texts] int64, the number of cached tokens.
        new: [rows, rows] bool, which new rows each row attends to.
    """
    index = torch.arange(length, device=new.device) - past[:, None]
    attends_to_new = new[:, index.clamp(0, len(new) - 1)] & (index >= 0) & (index < len(new))
    return attends_to_new.transpose(0, 1) | (index < 0)[:, None]


def additive_mask(mask: Tensor, group: int, dtype: torch.dtype) -> Tensor:
    """What attention adds to its scores. It is the same for all layers, so it is made once for a forward pass:
    attention would make it of a boolean mask in every layer, in five kernels.

    Args:
        mask: [..., rows, keys] bool, True = attends.
        group: query heads that share a key head.
        dtype: of the queries.

    Returns:
        [..., 1, group × rows, keys]: 0 or -∞.
    """
    values = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, -torch.inf)
    return values.unsqueeze(-3).repeat_interleave(group, -3).flatten(-3, -2).unsqueeze(-3)


def batched_attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """Grouped-query attention over a batch of texts.

    The query heads that share a key head are laid out as rows of one small problem, so keys are never copied for every
    query head.

    Args:
        query: [n, rows, heads, head_dim].
        key, value: [n, kv_heads, keys, head_dim].
        mask: [n, 1, group × rows, keys], from `additive_mask`, or None if every row attends to every key.

    Returns:
        [n, rows, heads × head_dim].
    """
    out = scaled_dot_product_attention(_fold_groups(query, key.shape[1]), key, value, attn_mask=mask)
    return _unfold_groups(out, query.shape[1]).flatten(-2)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """`batched_attend` for one text, without the first dimension."""
    return batched_attend(query[None], key[None], value[None], None if mask is None else mask[None])[0]


def _fold_groups(query: Tensor, kv_heads: int) -> Tensor:
    """[n, rows, heads, head_dim] → [n, kv_heads, group × rows, head_dim]."""
    n, rows, heads, size = query.shape
    group = heads // kv_heads
    return query.view(n, rows, kv_heads, group, size).permute(0, 2, 3, 1, 4).reshape(n, kv_heads, group * rows, size)


def _unfold_groups(folded: Tensor, rows: int) -> Tensor:
    """The inverse of `_fold_groups`: [n, kv_heads, group × rows, size] → [n, rows, heads, size]."""
    n, kv_heads, grouped, size = folded.shape
    group = grouped // rows
    return folded.view(n, kv_heads, group, rows, size).permute(0, 3, 1, 2, 4).reshape(n, rows, kv_heads * group, size)


def attend_split(query: Tensor, key: Tensor, value: Tensor, past: int, new: Tensor) -> Tensor:
    """`attend` for rows that all attend to the first `past` keys.

    The cached keys are one unmasked problem for a flash kernel, the few new ones a small masked problem. The results
    are merged by their log-sum-exps, as flash-decoding merges its splits.

    Args:
        past: number of keys that all rows attend to, at least one.
        new: [rows, rows] bool, which new rows each row attends to.
    """
    rows, heads, size = query.shape
    kv_heads = key.shape[0]
    past_out, past_lse = _flash_attention(query, key[:, :past], value[:, :past])
    folded = _fold_groups(query[None].float(), kv_heads)[0]
    scores = folded @ key[:, past:].float().transpose(-1, -2) / size**0.5
    scores = scores.masked_fill(~new.repeat(heads // kv_heads, 1), -torch.inf)
    new_lse = scores.logsumexp(-1, keepdim=True)
    new_out = _unfold_groups(((scores - new_lse).exp() @ value[:, past:].float())[None], rows)[0]
    new_lse = _unfold_groups(new_lse[None], rows)[0, ..., 0]
    share = torch.sigmoid(past_lse - new_lse)[..., None]  # e^a / (e^a + e^b)
    merged: Tensor = (past_out.float() * share + new_out * (1 - share)).to(query.dtype).reshape(rows, heads * size)
    return merged


def supports_attend_split(device: torch.device, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether there is a flash kernel for such queries: bfloat16 on GPUs from Ampere on."""
    return dtype == torch.bfloat16 and head_dim <= 256 and head_dim % 8 == 0 and is_ampere_or_newer(device)


FlashAttnFunction = Callable[..., tuple[Tensor, Tensor, Tensor]]
"""`flash_attn_func`: query [n, rows, heads, head_dim], key, value [n, keys, kv_heads, head_dim]. With
`return_attn_probs` it returns the output in the query's shape, the log-sum-exp [n, heads, rows] float32, and a third
value that is not used here."""


@cache
def flash_attn_kernel() -> FlashAttnFunction | None:
    """flash-attn's kernel if it is installed (`pip install flash-attn --no-build-isolation`), otherwise None."""
    try:
        from flash_attn import flash_attn_func
    except ImportError:
        return None
    kernel: FlashAttnFunction = flash_attn_func
    return kernel


def flash_attn_with_lse(kernel: FlashAttnFunction, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Unmasked attention by flash-attn.

    Args:
        query: [rows, heads, head_dim].
        key, value: [kv_heads, keys, head_dim].

    Returns:
        [rows, heads, head_dim], and the log-sum-exp of the scores [rows, heads].
    """
    out, lse, _ = kernel(query[None], key.transpose(0, 1)[None], value.transpose(0, 1)[None], return_attn_probs=True)
    return out[0], lse[0].transpose(0, 1)


def _flash_attention(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Unmasked attention [rows, heads, head_dim], and the log-sum-exp of its scores [rows, heads]."""
    flash_attn = flash_attn_kernel() if query.is_cuda else None
    if flash_attn is not None:
        return flash_attn_with_lse(flash_attn, query, key, value)
    aten, rows = torch.ops.aten, query.shape[0]
    kernel = (
        aten._scaled_dot_product_flash_attention if query.is_cuda else aten._scaled_dot_product_flash_attention_for_cpu
    )
    out, lse = kernel(_fold_groups(query[None], key.shape[0]), key[None], value[None])[:2]
    return _unfold_groups(out, rows)[0], _unfold_groups(lse[..., None], rows)[0, ..., 0].float()
