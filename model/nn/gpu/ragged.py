"""Attention of prompts of several conversations at once (`nn/ragged.py`): flash-attn where it is installed, a Triton
kernel otherwise, and plain PyTorch where neither computes what it should."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from model.checkpoint.checkpoint import DecoderConfig
from model.nn.attention import additive_mask, attend, causal_mask
from model.nn.cuda import first_line
from model.nn.device import is_ampere_or_newer
from model.nn.ragged import RaggedAttention, RaggedRows

_log = logging.getLogger("rejoinder.model")

_PAGE = 256
"""flash-attn takes pages of keys whose size is a multiple of this (`mha_varlen_fwd`)."""

_MAX_ERROR = {torch.bfloat16: 2e-2, torch.float32: 1e-3}
"""Relative differences that another order of sums explains. A wrong mask or slot differs by 0.3 and more."""

_CHECKED = ((1, 300), (70, 0), (9, 64), (130, 513))
"""Rows and earlier tokens of the conversations with which an implementation is checked: with and without an earlier
text, and over the border of a tile."""

VarlenFunction = Callable[..., Tensor]
"""flash-attn's `flash_attn_varlen_func`."""


class LoopedAttention:
    """Plain PyTorch, one conversation after the other: what the others are compared with."""

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, rows: RaggedRows) -> Tensor:
        group, out, first = query.shape[1] // keys.shape[1], [], 0
        for count, past, slot, mask in zip(rows.counts, rows.past, rows.slots, rows.masks, strict=True):
            new = causal_mask(count, 0) if mask is None else mask
            visible = torch.cat((torch.ones(count, past, dtype=torch.bool), new), 1).to(query.device)
            own_keys, own_values = (part[slot, :, : past + count] for part in (keys, values))
            mask = additive_mask(visible, group, query.dtype)
            out.append(attend(query[first : first + count], own_keys, own_values, mask))
            first += count
        return torch.cat(out)


@dataclass(frozen=True)
class FlashAttention:
    """flash-attn's kernel for ragged batches. A slot is a page of its paged cache, so no key is copied.

    Attributes:
        kernel: `flash_attn_varlen_func`.
        otherwise: for rows that are not causal, which it has no mask for, and for texts that end after the last whole
            page of a slot.
    """

    kernel: VarlenFunction
    otherwise: RaggedAttention

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, rows: RaggedRows) -> Tensor:
        longest = max(past + count for past, count in zip(rows.past, rows.counts, strict=True))
        page = keys.shape[2] // _PAGE * _PAGE
        if not rows.is_causal or longest > page:
            return self.otherwise(query, keys, values, rows)
        row_starts, key_starts, slots = rows.boundaries
        keys, values = (part[:, :, :page].transpose(1, 2) for part in (keys, values))
        out = self.kernel(
            query, keys, values, row_starts, key_starts, max(rows.counts), longest, causal=True, block_table=slots
        )
        return out.flatten(1)


@cache
def flash_attn_varlen() -> VarlenFunction | None:
    """flash-attn's kernel if it is installed, otherwise None."""
    try:
        from flash_attn import flash_attn_varlen_func
    except ImportError:
        return None
    kernel: VarlenFunction = flash_attn_varlen_func
    return kernel


def select_ragged_attention(config: DecoderConfig, dtype: torch.dtype, device: torch.device) -> RaggedAttention | None:
    """The fastest implementation on a GPU that computes there what plain PyTorch does. None on a CPU, if there is none,
    and with `REJOINDER_TRITON=0` in the environment: then each conversation has its own attention."""
    if not is_ampere_or_newer(device) or os.environ.get("REJOINDER_TRITON") == "0":
        return None
    triton = _checked("Triton's", _triton_attention, config, dtype, device)
    flash, fits = flash_attn_varlen(), config.head_dim <= 256 and config.head_dim % 8 == 0
    if flash is None or dtype != torch.bfloat16 or not fits:
        return triton
    attention = FlashAttention(flash, triton or LoopedAttention())
    return _checked("flash-attn's", lambda: attention, config, dtype, device) or triton


def _triton_attention() -> RaggedAttention:
    from model.nn.gpu.triton_ragged import TritonAttention  # late: Triton may be missing

    return TritonAttention()


def _checked(
    name: str, make: Callable[[], RaggedAttention], config: DecoderConfig, dtype: torch.dtype, device: torch.device
) -> RaggedAttention | None:
    """An implementation, unless it fails or is wrong here."""
    try:
        attention = make()
        error = difference(attention, config, dtype, device)
        if error <= _MAX_ERROR[dtype]:
            return attention
        reason = f"its results differ from PyTorch's by {error:.1e}"
    except Exception as problem:  # of an import, Triton, its compiler, the driver
        reason = first_line(problem)
    _log.warning("%s attention cannot read several prompts at once here, so they take longer: %s", name, reason)
    return None


@torch.inference_mode()
def difference(
    attention: RaggedAttention,
    config: DecoderConfig,
    dtype: torch.dtype,
    device: torch.device,
    conversations: Sequence[tuple[int, int]] = _CHECKED,
) -> float:
    """How far an implementation is from `LoopedAttention`, relatively, for random rows: the largest of causal ones and
    of a batch in which one conversation has a mask.

    Args:
        conversations: rows and earlier tokens of each of at least four.
    """
    draw = torch.Generator().manual_seed(0)
    counts, past = zip(*conversations, strict=True)
    capacity = -(-max(map(sum, conversations)) // _PAGE) * _PAGE
    shape = (2, 1, len(counts) + 1, config.kv_heads, capacity, config.head_dim)
    keys_values = torch.randn(shape, generator=draw).to(device, dtype)
    query = torch.randn(sum(counts), config.heads, config.head_dim, generator=draw).to(device, dtype)
    slots = tuple(torch.randperm(len(counts) + 1, generator=draw).tolist()[: len(counts)])
    mask = torch.rand(counts[2], counts[2], generator=draw) < 0.5
    errors = []
    mask |= torch.eye(counts[2], dtype=torch.bool)
    for masks in ((None,) * len(counts), (None, None, mask, *[None] * (len(counts) - 3))):
        rows = RaggedRows(keys_values, counts, past, slots, masks)
        found, expected = (
            one(query, keys_values[0, 0], keys_values[1, 0], rows).float().split_with_sizes(counts)
            for one in (attention, LoopedAttention())
        )
        for part, reference in zip(found, expected, strict=True):
            errors.append(float((part - reference).norm() / reference.norm()))
    return max(error if error == error else float("inf") for error in errors)  # NaN is wrong, too
