"""One slab of memory for the keys and values of many conversations, a slot for each. The steps of a batch address a
conversation by the number of its slot, so conversations join and leave a batch without their keys being copied.

A conversation keeps its slot between its turns. When all are taken, the idle conversation that was used longest ago
loses its slot and reads its text again at its next turn.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict

import torch

from model.checkpoint.checkpoint import DecoderConfig
from model.nn.kv_cache import KeyValueCache


class KeyValueSlab:
    """The slots. For one thread, except for `new_cache`.

    Args:
        num_slots: conversations that have room.
        capacity: positions of a slot.

    Attributes:
        keys_values: [2, layers, slots + 1, kv_heads, capacity, head_dim]. The last slot belongs to nobody: the rows
            that fill up a batch are written there.
    """

    def __init__(
        self, config: DecoderConfig, dtype: torch.dtype, device: torch.device, num_slots: int, capacity: int
    ) -> None:
        shape = (2, config.layers, num_slots + 1, config.kv_heads, capacity, config.head_dim)
        self.keys_values = torch.zeros(shape, dtype=dtype, device=device)
        self._config = config
        self._free = list(range(num_slots - 1, -1, -1))
        self._lent: OrderedDict[int, weakref.ref[SlotCache]] = OrderedDict()
        """The caches in the slots, the one that was used longest ago first."""

    @property
    def num_slots(self) -> int:
        """Conversations that have room."""
        return self.keys_values.shape[2] - 1

    @property
    def capacity(self) -> int:
        """Positions of a slot."""
        return self.keys_values.shape[4]

    def new_cache(self) -> SlotCache:
        """An empty cache. It takes a slot when it is first written to."""
        return SlotCache(self._config, self)

    def lend(self, cache: SlotCache) -> int | None:
        """A slot for a cache. None if all belong to caches that are in use."""
        for slot, reference in list(self._lent.items()):
            if reference() is None:
                self.take_back(slot)
        if not self._free:
            owners = [reference() for reference in self._lent.values()]
            idle = next((owner for owner in owners if owner is not None and not owner.in_use), None)
            if idle is None:
                return None
            idle.evict()
        slot = self._free.pop()
        self._lent[slot] = weakref.ref(cache)
        return slot

    def take_back(self, slot: int) -> None:
        """The slot is free again."""
        del self._lent[slot]
        self._free.append(slot)

    def record_use(self, slot: int) -> None:
        """The cache in this slot loses it after all others."""
        self._lent.move_to_end(slot)


class SlotCache(KeyValueCache):
    """A cache in a slot of a slab. While all slots are in use by others, and when its text is longer than a slot, it
    has memory of its own instead.

    Attributes:
        slot: its slot, or None.
    """

    def __init__(self, config: DecoderConfig, slab: KeyValueSlab) -> None:
        super().__init__(config, slab.keys_values.dtype, slab.keys_values.device)
        self._slab = slab
        self.slot: int | None = None

    @property
    def keys_values(self) -> torch.Tensor:
        """Those of the slab."""
        return self._slab.keys_values

    def reserve(self, count: int) -> None:
        """Make room for `count` more tokens."""
        fits = len(self.tokens) + count <= self._slab.capacity
        if self.slot is None and fits:
            self._move_in()
        elif self.slot is not None and not fits:
            self._slab.take_back(self.slot)
            self.slot, self._capacity = None, 0  # what it holds is copied to new memory
        if self.slot is not None:
            self._slab.record_use(self.slot)
        super().reserve(count)

    def evict(self) -> None:
        """Give up the slot and what it holds."""
        self.truncate(0)
        if self.slot is not None:
            self._slab.take_back(self.slot)
        self.slot, self._capacity, self._keys, self._values = None, 0, [], []

    @torch.inference_mode()
    def fork(self) -> SlotCache:
        """An independent copy."""
        copy, in_use = self._slab.new_cache(), self.in_use
        self.in_use = True  # the copy must not get this cache's own slot
        try:
            copy.copy_from(self)
        finally:
            self.in_use = in_use
        return copy

    def _move_in(self) -> None:
        slot = self._slab.lend(self)
        if slot is None:
            return
        old, count = self.tensors(), len(self.tokens)
        keys, values = self._slab.keys_values[:, :, slot]
        self.slot, self._capacity, self._keys, self._values = slot, self._slab.capacity, [*keys], [*values]
        for own, previous in zip(self.tensors(), old, strict=False):
            own[:, :count] = previous[:, :count]


def slot_bytes(config: DecoderConfig, itemsize: int, capacity: int) -> int:
    """Memory of a slot."""
    return 2 * config.layers * config.kv_heads * capacity * config.head_dim * itemsize


def affordable_slots(slot_bytes: int, free_bytes: int, most: int) -> int:
    """How many slots a GPU has room for, at least one: half of what is free after loading. The other half is for
    prompts, for what steps compute, and for prefixes that conversations share."""
    return max(1, min(most, free_bytes // 2 // slot_bytes - 1))
