"""The new rows of several conversations as one attention over the slots of a slab, instead of one per conversation:
what a forward pass prepares once (`RaggedRows`), and the interface of what computes it. `nn/gpu/ragged.py` has the
kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from model.nn.attention import causal_mask
from model.nn.forward_batch import ForwardInput
from model.nn.kv_slab import SlotCache

_MAX_TILE = 64
"""Rows of a tile. A conversation's rows read its keys once for each tile."""

CAUSAL = -1
"""In place of where a conversation's mask begins: it has none, because its rows are causal."""


@dataclass(frozen=True)
class RaggedRows:
    """The new rows of conversations that lie in slots of one slab, one conversation after the other.

    Attributes:
        keys_values: [2, layers, slots, kv_heads, capacity, head_dim], the slab.
        counts, past, slots: for each conversation the number of its new rows and of its earlier tokens, and its slot.
        masks: [rows, rows] bool on the host for each conversation, which of its new rows each attends to; None if they
            are causal. All attend to every earlier token.
    """

    keys_values: Tensor
    counts: tuple[int, ...]
    past: tuple[int, ...]
    slots: tuple[int, ...]
    masks: tuple[Tensor | None, ...]

    @staticmethod
    def of(batch: Sequence[ForwardInput]) -> RaggedRows | None:
        """The rows of a forward pass, room for which is reserved. None if a conversation has no slot."""
        caches = [inputs.cache for inputs in batch if isinstance(inputs.cache, SlotCache)]
        slots = tuple(cache.slot for cache in caches if cache.slot is not None)
        if len(slots) < len(batch) or len({cache.keys_values.data_ptr() for cache in caches}) != 1:
            return None
        return RaggedRows(
            caches[0].keys_values,
            tuple(len(inputs.tokens) for inputs in batch),
            tuple(len(cache.tokens) for cache in caches),
            slots,
            tuple(_unless_causal(inputs.attention_mask) for inputs in batch),
        )

    @property
    def device(self) -> torch.device:
        """Where keys and values are."""
        return self.keys_values.device

    @property
    def is_causal(self) -> bool:
        """Whether every conversation is."""
        return all(mask is None for mask in self.masks)

    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write new keys and values [rows, kv_heads, head_dim] of one layer after the earlier ones.

        Returns:
            The layer's keys and values: [slots, kv_heads, capacity, head_dim] each.
        """
        keys, values = self.keys_values[:, layer]
        for cache, new in ((keys, key), (values, value)):
            width = cache.shape[-1]
            cache.view(-1, width).index_copy_(0, self._cells, new.reshape(-1, width))
        return keys, values

    @cached_property
    def _cells(self) -> Tensor:
        """[rows × kv_heads] int64: where each row's keys and values are in a layer, counted in heads."""
        kv_heads, capacity = self.keys_values.shape[3:5]
        heads, places = torch.arange(kv_heads), []
        for count, past, slot in zip(self.counts, self.past, self.slots, strict=True):
            places.append((slot * kv_heads + heads) * capacity + past + torch.arange(count)[:, None])
        return torch.cat(places).flatten().to(self.device)

    @property
    def tile_rows(self) -> int:
        """Rows of a tile: a power of two from 16 on, as tensor cores take them."""
        return min(_MAX_TILE, max(16, 1 << (max(self.counts) - 1).bit_length()))

    @cached_property
    def tiles(self) -> Tensor:
        """[tiles, 6] int64: the rows in tiles, each of one conversation. The first row of the conversation in the
        batch, the tile's first row in the conversation, the conversation's number of rows, of earlier tokens, its slot,
        and where its mask begins in `packed_mask`, or `CAUSAL`."""
        tiles, first, bits = [], 0, 0
        for count, past, slot, mask in zip(self.counts, self.past, self.slots, self.masks, strict=True):
            begin = CAUSAL if mask is None else bits
            tiles += [(first, row, count, past, slot, begin) for row in range(0, count, self.tile_rows)]
            first, bits = first + count, bits + (0 if mask is None else mask.numel())
        return torch.tensor(tiles, dtype=torch.long, device=self.device)

    @cached_property
    def packed_mask(self) -> Tensor:
        """[Σ rows²] uint8: the masks that are not causal, one after the other; one 0 if all are."""
        masks = [mask.flatten() for mask in self.masks if mask is not None]
        packed = torch.cat(masks) if masks else torch.zeros(1, dtype=torch.bool)
        return packed.to(self.device).view(torch.uint8)

    @cached_property
    def boundaries(self) -> tuple[Tensor, Tensor, Tensor]:
        """For flash-attn, int32: where the new rows of each conversation begin and the last ones end [n + 1], the same
        for all its keys, and the slot of each [n, 1]."""
        ends = torch.tensor((self.counts, self.past)).cumsum(1)
        starts = torch.nn.functional.pad(torch.stack((ends[0], ends.sum(0))), (1, 0)).int().to(self.device)
        return starts[0], starts[1], torch.tensor(self.slots, dtype=torch.int32, device=self.device)[:, None]


class RaggedAttention(Protocol):
    """Grouped-query attention of all rows of a forward pass."""

    def __call__(self, query: Tensor, keys: Tensor, values: Tensor, rows: RaggedRows) -> Tensor:
        """Attend, in one layer.

        Args:
            query: [rows, heads, head_dim].
            keys, values: [slots, kv_heads, capacity, head_dim], the new ones included.

        Returns:
            [rows, heads × head_dim].
        """
        ...


def _unless_causal(mask: Tensor) -> Tensor | None:
    return None if torch.equal(mask, causal_mask(len(mask), 0)) else mask
