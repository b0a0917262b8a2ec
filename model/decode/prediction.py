"""Predicted output: drafts a response from a text that it will resemble, such as the one that it rewrites."""

from __future__ import annotations

from collections.abc import Callable, Sequence

MAX_PREDICTED = 7
"""Tokens that are drafted at a time: with the last token they fill eight rows, and a ninth costs more on most
processors."""

_WINDOW = 32
"""How many tokens of the prediction a response may leave out at once: a spoken correction replaces fewer."""


class Prediction:
    """The place in a predicted text that a response has reached.

    Where the response differs, the prediction continues after the nearest later place that has its newest token. Until
    a second token confirms that place, the next one is looked for from the last certain place on.

    Args:
        tokens: of the predicted text.
        key: what tokens are compared by, so that a word is found again with another capital.
    """

    def __init__(self, tokens: Sequence[int], key: Callable[[int], object] = lambda token: token) -> None:
        self._tokens, self._key = tuple(tokens), key
        self._keys = [key(token) for token in tokens]
        self._certain = 0
        self._next: int | None = 0

    def extend(self, tokens: Sequence[int]) -> None:
        """The response has become longer by these tokens."""
        for token in tokens:
            key = self._key(token)
            if self._next is not None and self._keys[self._next : self._next + 1] == [key]:
                self._next = self._certain = self._next + 1
                continue
            window = self._keys[self._certain : self._certain + _WINDOW]
            self._next = self._certain + window.index(key) + 1 if key in window else None

    def find(self, length: int) -> tuple[int, ...]:
        """At most `length` tokens that may follow; empty where the response is something else."""
        return () if self._next is None else self._tokens[self._next : self._next + length]
