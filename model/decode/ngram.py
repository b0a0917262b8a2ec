"""N-gram look-up: proposes the tokens that followed the last earlier occurrence of the newest tokens."""

from __future__ import annotations

from collections.abc import Sequence

NGRAM_SIZE = 3
"""How many of the newest tokens must match."""


class NgramLookup:
    """Prompt look-up decoding (Saxena 2023).

    Args:
        tokens: the conversation so far.
    """

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens: list[int] = []
        self._next_position: dict[tuple[int, ...], int] = {}
        self._match: int | None = None
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens to the conversation."""
        for token in tokens:
            self._tokens.append(token)
            newest = tuple(self._tokens[-NGRAM_SIZE:])
            self._match = self._next_position.get(newest)
            if len(newest) == NGRAM_SIZE:
                self._next_position[newest] = len(self._tokens)

    def find(self, length: int) -> tuple[int, ...]:
        """At most `length` tokens that may follow; empty if the newest tokens occur nowhere else."""
        return () if self._match is None else tuple(self._tokens[self._match : self._match + length])
