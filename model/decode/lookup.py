"""Continuations copied from the conversation: what followed the last place where its newest tokens stood before."""

from __future__ import annotations

from collections.abc import Sequence

NEWEST = 3
"""How many of the newest tokens must have stood there."""


class LookUp:
    """Prompt look-up decoding (Saxena 2023).

    Args:
        tokens: the conversation so far.
        size: how many newest tokens must agree.
    """

    def __init__(self, tokens: Sequence[int], size: int = NEWEST) -> None:
        self._tokens: list[int] = []
        self._size = size
        self._after: dict[tuple[int, ...], int] = {}
        self._found: int | None = None
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """The conversation went on."""
        for token in tokens:
            self._tokens.append(token)
            newest = tuple(self._tokens[-self._size :])
            self._found = self._after.get(newest)
            if len(newest) == self._size:
                self._after[newest] = len(self._tokens)

    def find(self, length: int) -> tuple[int, ...]:
        """At most `length` tokens that may follow; empty when the newest tokens stand nowhere else."""
        return () if self._found is None else tuple(self._tokens[self._found : self._found + length])
