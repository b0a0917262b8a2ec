"""Draft tokens: tokens that may come next and are not final."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Draft:
    """Unverified tokens that may come next.

    Attributes:
        distributions: [tokens, vocabulary], what each token was drawn from; None if they were chosen greedily.
        confidence: probability of each token in its own distribution.
    """

    tokens: tuple[int, ...] = ()
    distributions: Tensor | None = None
    confidence: tuple[float, ...] = ()

    def first(self, count: int) -> Draft:
        """Its first tokens."""
        if count >= len(self.tokens):
            return self
        distributions = None if self.distributions is None else self.distributions[:count]
        return Draft(self.tokens[:count], distributions, self.confidence[:count])


NO_DRAFT = Draft()


class DraftHead(Protocol):
    """Drafts between two forward passes, from what the last one computed (`nn/draft_head.py`).

    Attributes:
        acceptance: how often the first, the first two, … drafts are all accepted.
    """

    acceptance: tuple[float, ...]

    def draft(
        self, features: Tensor, tokens: Sequence[int], more: Callable[[Sequence[float]], bool]
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Draft what follows some tokens.

        Args:
            features: [features] of the row that predicted the first of them (`ForwardInput.on_features`).
            tokens: committed since then; at least one.
            more: whether to draft another token, given the confidence of those before it.

        Returns:
            The drafts, and the confidence in each, provided that those before it are right.
        """
        ...
