"""Instructions and tools that many conversations begin with are read once: the next conversation copies their keys."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from model.cache import KeyValueCache

_MOST = 8
"""Beginnings that are kept: a server has few personas. One of 500 tokens takes 12 MB with the 0.5B."""

_SHORTEST = 8
"""Tokens below which copying saves nothing."""


class SharedPrefixes:
    """The beginnings of conversations, least recently used first. For one thread."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, ...], KeyValueCache] = OrderedDict()

    def lend(self, cache: KeyValueCache, ids: Sequence[int]) -> None:
        """Let a cache begin with the longest kept beginning of `ids`, if that is more than it holds of them."""
        held = cache.common(ids)
        fitting = [kept for kept in self._kept if held < len(kept) <= len(ids) and tuple(ids[: len(kept)]) == kept]
        if fitting:
            longest = max(fitting, key=len)
            self._kept.move_to_end(longest)
            cache.begin_with(self._kept[longest])

    def keep(self, cache: KeyValueCache, count: int) -> None:
        """Keep the first `count` tokens of a cache for others."""
        tokens = tuple(cache.tokens[:count])
        if count < _SHORTEST or len(tokens) < count or tokens in self._kept:
            return
        self._kept[tokens] = cache.prefix(count)
        if len(self._kept) > _MOST:
            self._kept.popitem(last=False)
