"""The key-value cache of one conversation: append, truncate, copy, and which tokens it holds."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from model.checkpoint.checkpoint import DecoderConfig

_INITIAL_CAPACITY = 512
"""Tokens that a new cache has room for: the instructions and a few turns. The capacity doubles when it is full."""

_LARGE = 4096
"""From here on the capacity grows by this many tokens at a time. Doubling could take twice the memory that a long
context needs; reading this many tokens takes so long that copying the cache does not count."""

_GROUP = 32
"""Numbers of an int8 cache that share a scale, as in GGUF's Q8_0."""


def group_size(head_dim: int) -> int:
    """Numbers of a head that share a scale in an int8 cache."""
    return head_dim if head_dim % _GROUP else _GROUP


def record_bytes(head_dim: int) -> int:
    """Bytes of a token's keys, or values, of one head in an int8 cache: `head_dim` levels from -127 to 127, then the
    scale of each group as float32."""
    return head_dim + 4 * (head_dim // group_size(head_dim))


def quantized(values: Tensor, head_dim: int) -> Tensor:
    """Numbers as an int8 cache keeps them: [..., head_dim] float32 → [..., record_bytes] int8."""
    groups = values.view(*values.shape[:-1], -1, group_size(head_dim))
    scales = groups.abs().amax(-1, keepdim=True) / 127
    levels = (groups / scales.clamp(min=1e-12)).round().to(torch.int8).flatten(-2)
    return torch.cat([levels, scales.squeeze(-1).contiguous().view(torch.int8)], -1)


def _capacity_for(tokens: int) -> int:
    """Tokens that a cache of this many has room for."""
    if tokens > _LARGE:
        return -(-tokens // _LARGE) * _LARGE
    return max(_INITIAL_CAPACITY, 1 << (tokens - 1).bit_length())


class KeyValueCache:
    """Keys and values of a conversation's tokens.

    Args:
        dtype: of the numbers, or int8 for quantized ones (`record_bytes`), which only the kernels of int8 weights can
            write and read.

    Attributes:
        tokens: the ids whose keys and values are held, in order. `len(tokens)` is the position of the next one.
        in_use: whether a request of its conversation is active.
        dtype, device: how they are kept, and where.
    """

    def __init__(self, config: DecoderConfig, dtype: torch.dtype, device: torch.device) -> None:
        self.tokens: list[int] = []
        self.in_use = False
        self._config, self.dtype, self.device = config, dtype, device
        self._width = record_bytes(config.head_dim) if dtype == torch.int8 else config.head_dim
        self._capacity = 0
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []

    @property
    def bytes_per_token(self) -> int:
        """Memory that a token takes."""
        c = self._config
        return 2 * c.layers * c.kv_heads * self._width * self.dtype.itemsize

    def bytes_for(self, tokens: int) -> int:
        """Memory of a cache that has grown to hold this many tokens."""
        return _capacity_for(tokens) * self.bytes_per_token

    def reserve(self, count: int) -> None:
        """Make room for `count` more tokens."""
        needed = len(self.tokens) + count
        if needed <= self._capacity:
            return
        capacity = _capacity_for(needed)
        if not self._keys:
            self._keys, self._values = ([self._empty(0) for _ in range(self._config.layers)] for _ in range(2))
        for tensors in (self._keys, self._values):
            for layer in range(len(tensors)):  # one at a time, so that only one is held twice
                larger = self._empty(capacity)
                larger[:, : len(self.tokens)] = tensors[layer][:, : len(self.tokens)]
                tensors[layer] = larger
        self._capacity = capacity

    def write(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Write the keys and values of new tokens after the committed ones, for one layer.

        Args:
            key, value: [rows, kv_heads, head_dim]. Room for them must be reserved. Not for an int8 cache.

        Returns:
            All keys and values up to and including the new ones: [kv_heads, keys, head_dim] each.
        """
        start, end = len(self.tokens), len(self.tokens) + key.shape[0]
        self._keys[layer][:, start:end] = key.transpose(0, 1)
        self._values[layer][:, start:end] = value.transpose(0, 1)
        return self._keys[layer][:, :end], self._values[layer][:, :end]

    @torch.inference_mode()
    def load(self, tokens: Sequence[int], keys: Tensor, values: Tensor) -> None:
        """Replace the contents with tokens whose keys and values are known: [layers, kv_heads, tokens, head_dim] each,
        float32, or as this cache keeps them."""
        self.truncate(0)
        self.reserve(len(tokens))
        for tensor, known in zip(self.tensors(), (*keys, *values), strict=True):
            is_kept = self.dtype != torch.int8 or known.dtype == torch.int8
            tensor[:, : len(tokens)] = known if is_kept else quantized(known, known.shape[-1])
        self.commit(tokens)

    def commit(self, tokens: Sequence[int]) -> None:
        """Record which tokens were written, after every layer has written them."""
        self.tokens.extend(tokens)

    @torch.inference_mode()
    def keep(self, rows: Sequence[int], tokens: Sequence[int]) -> None:
        """Commit the written rows `rows`, in this order, as `tokens`, and discard the others."""
        start = len(self.tokens)
        moved = next((n for n, row in enumerate(rows) if n != row), len(rows))
        if moved < len(rows):
            index = torch.tensor(rows[moved:], device=self.device) + start
            for tensor in (*self._keys, *self._values):
                tensor[:, start + moved : start + len(rows)] = tensor[:, index]
        self.commit(tokens)

    def tensors(self) -> list[Tensor]:
        """The keys of all layers, then the values of all layers: [kv_heads, capacity, head_dim] each, or
        [kv_heads, capacity, record_bytes] of an int8 cache."""
        return [*self._keys, *self._values]

    def truncate(self, length: int) -> None:
        """Discard every token from position `length` on."""
        del self.tokens[length:]

    @torch.inference_mode()
    def fork(self) -> KeyValueCache:
        """An independent copy."""
        copy = KeyValueCache(self._config, self.dtype, self.device)
        copy.copy_from(self)
        return copy

    def common_prefix_length(self, tokens: Sequence[int]) -> int:
        """Length of the longest common prefix of `tokens` and the cached tokens."""
        pairs = zip(self.tokens, tokens, strict=False)
        return next((n for n, (own, other) in enumerate(pairs) if own != other), min(len(self.tokens), len(tokens)))

    def truncate_to_common_prefix(self, tokens: Sequence[int]) -> int:
        """Discard what is not a prefix of `tokens`; returns the number of tokens that remain."""
        length = self.common_prefix_length(tokens)
        self.truncate(length)
        return length

    @torch.inference_mode()
    def copy_prefix(self, count: int) -> KeyValueCache:
        """A copy of the first `count` tokens, with no spare capacity."""
        copy = KeyValueCache(self._config, self.dtype, self.device)
        copy.tokens, copy._capacity = self.tokens[:count], count
        copy._keys = [keys[:, :count].clone() for keys in self._keys]
        copy._values = [values[:, :count].clone() for values in self._values]
        return copy

    @torch.inference_mode()
    def copy_from(self, other: KeyValueCache) -> None:
        """Replace the contents with those of `other`."""
        self.truncate(0)
        tokens = list(other.tokens)
        count = len(tokens)
        self.reserve(count)
        for own, new in zip(self.tensors(), other.tensors(), strict=True):
            own[:, :count] = new[:, :count]
        self.commit(tokens)

    def _empty(self, capacity: int) -> Tensor:
        return torch.empty((self._config.kv_heads, capacity, self._width), dtype=self.dtype, device=self.device)
