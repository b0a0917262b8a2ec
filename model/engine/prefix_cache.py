"""Prefix caching: instructions and tools that many conversations share are read once, and their keys and values are
copied into the next conversation's cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from model.engine.kept_prefixes import KeptPrefixes
from model.nn.kv_cache import KeyValueCache

MAX_PREFIXES, MAX_TOKENS = 8, 4096
"""Prefixes that are kept, and tokens of all of them: a server has few personas, but each program that uses the text API
may bring instructions of its own. On a CPU that many tokens take 100 MB with the 0.5B and 235 MB with the 1.5B."""

_MIN_TOKENS = 8
"""Copying fewer tokens saves nothing."""


class PrefixCache:
    """Shared prefixes, evicted least recently used first. For one thread.

    Args:
        trained: prefixes whose keys and values were trained. They are never evicted.
        kept: those that an earlier start has read.
    """

    def __init__(self, trained: Sequence[KeyValueCache] = (), kept: KeptPrefixes | None = None) -> None:
        self._kept = kept
        self._prefixes = OrderedDict(kept.caches if kept else {})
        self._trained = {tuple(cache.tokens): cache for cache in trained}

    def fill(self, cache: KeyValueCache, ids: Sequence[int]) -> None:
        """Copy the longest stored prefix of `ids` into a cache, if it is longer than what the cache holds of them."""
        cached = cache.common_prefix_length(ids)
        matches = [
            tokens
            for tokens in (*self._prefixes, *self._trained)
            if cached < len(tokens) <= len(ids) and tuple(ids[: len(tokens)]) == tokens
        ]
        if matches:
            longest = max(matches, key=len)
            if longest in self._prefixes:
                self._prefixes.move_to_end(longest)
            cache.copy_from(self._trained.get(longest) or self._prefixes[longest])

    def add(self, cache: KeyValueCache, count: int, *, keep: bool = False) -> None:
        """Store the first `count` tokens of a cache for other conversations.

        Args:
            keep: for the next start, too.
        """
        tokens = tuple(cache.tokens[:count])
        known = tokens in self._prefixes or tokens in self._trained
        if known or not _MIN_TOKENS <= count <= MAX_TOKENS or len(tokens) < count:
            return
        while len(self._prefixes) >= MAX_PREFIXES or count + sum(map(len, self._prefixes)) > MAX_TOKENS:
            self._prefixes.popitem(last=False)
        self._prefixes[tokens] = cache.copy_prefix(count)
        if keep and self._kept is not None:
            self._kept.keep(self._prefixes[tokens])
