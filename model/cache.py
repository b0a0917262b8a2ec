"""The key/value cache of one conversation: append, truncate, and remember which tokens it holds."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from model.weights import DecoderConfig

_FIRST_CAPACITY = 512
"""Tokens that the cache has room for at first: the persona and a few turns. It doubles when it is full."""


class KeyValueCache:
    """Keys and values of the tokens that a conversation has been read to.

    Attributes:
        tokens: the ids whose keys and values are held, in order; `len(tokens)` is the position of the next one.
        aboard_from: the first token whose keys and values a stride holds until it lands; None for none.
    """

    def __init__(self, config: DecoderConfig, dtype: torch.dtype, device: torch.device) -> None:
        self.tokens: list[int] = []
        self.aboard_from: int | None = None
        self._config, self._dtype, self._device = config, dtype, device
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._capacity = 0

    def reserve(self, count: int) -> None:
        """Make room for `count` more tokens."""
        needed = len(self.tokens) + count
        if needed <= self._capacity:
            return
        capacity = max(_FIRST_CAPACITY, self._capacity)
        while capacity < needed:
            capacity *= 2
        nothing: list[Tensor | None] = [None] * self._config.layers
        self._keys = [self._grown(old, capacity) for old in self._keys or nothing]
        self._values = [self._grown(old, capacity) for old in self._values or nothing]
        self._capacity = capacity

    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Put the keys and values of new tokens behind those held, for one layer.

        Args:
            key, value: [rows, kv_heads, head_dim]; room for them must be reserved.

        Returns:
            All keys and values up to and with the new ones: [kv_heads, seen, head_dim] each.
        """
        start, end = len(self.tokens), len(self.tokens) + key.shape[0]
        self._keys[layer][:, start:end] = key.transpose(0, 1)
        self._values[layer][:, start:end] = value.transpose(0, 1)
        return self._keys[layer][:, :end], self._values[layer][:, :end]

    def commit(self, tokens: Sequence[int]) -> None:
        """Say which tokens were written, once every layer has them."""
        self.tokens.extend(tokens)

    @torch.inference_mode()
    def keep(self, rows: Sequence[int], tokens: Sequence[int]) -> None:
        """Of the rows that were written, keep `rows` (in this order) as `tokens`, and forget the others."""
        start = len(self.tokens)
        if list(rows) != list(range(len(rows))):
            places = torch.tensor(rows, device=self._device) + start
            for stored in (*self._keys, *self._values):
                stored[:, start : start + len(rows)] = stored[:, places]
        self.commit(tokens)

    def stored(self) -> list[Tensor]:
        """All keys, layer by layer, then all values: [kv_heads, room, head_dim] each."""
        return [*self._keys, *self._values]

    @torch.inference_mode()
    def store(self, start: int, end: int, rows: Sequence[Tensor]) -> None:
        """Put keys and values that were computed elsewhere at positions `start` to `end`, in the order of `stored`."""
        if end > self._capacity:
            held, self.tokens = self.tokens, self.tokens[:start]
            self.reserve(end - start)
            self.tokens = held
        for mine, theirs in zip(self.stored(), rows, strict=True):
            mine[:, start:end] = theirs

    def truncate(self, length: int) -> None:
        """Forget every token from position `length` on."""
        del self.tokens[length:]

    @torch.inference_mode()
    def fork(self) -> KeyValueCache:
        """A copy that goes its own way."""
        twin = KeyValueCache(self._config, self._dtype, self._device)
        twin.begin_with(self)
        return twin

    def common(self, tokens: Sequence[int]) -> int:
        """How many of the first tokens are those held."""
        pairs = zip(self.tokens, tokens, strict=False)
        return next((n for n, (held, wanted) in enumerate(pairs) if held != wanted), min(len(self.tokens), len(tokens)))

    def keep_common(self, tokens: Sequence[int]) -> int:
        """Forget what does not begin `tokens`; returns how many tokens are left."""
        common = self.common(tokens)
        self.truncate(common)
        return common

    @torch.inference_mode()
    def prefix(self, count: int) -> KeyValueCache:
        """A copy of the first `count` tokens that takes up no more room than they need."""
        twin = KeyValueCache(self._config, self._dtype, self._device)
        twin.tokens, twin._capacity = self.tokens[:count], count
        twin._keys = [stored[:, :count].clone() for stored in self._keys]
        twin._values = [stored[:, :count].clone() for stored in self._values]
        return twin

    @torch.inference_mode()
    def begin_with(self, prefix: KeyValueCache) -> None:
        """Hold what another cache holds, as far as it lies there, and nothing else."""
        self.truncate(0)
        held = prefix.tokens[: prefix.aboard_from]
        count = len(held)
        self.reserve(count)
        for mine, theirs in zip((*self._keys, *self._values), (*prefix._keys, *prefix._values), strict=True):
            mine[:, :count] = theirs[:, :count]
        self.commit(held)

    def _grown(self, old: Tensor | None, capacity: int) -> Tensor:
        shape = (self._config.kv_heads, capacity, self._config.head_dim)
        grown = torch.empty(shape, dtype=self._dtype, device=self._device)
        if old is not None:
            grown[:, : len(self.tokens)] = old[:, : len(self.tokens)]
        return grown
