"""Draft tokens: tokens that may come next and are not final."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from chat.progress import DraftOrigin


@dataclass(frozen=True)
class Draft:
    """Unverified tokens that may come next.

    Attributes:
        distributions: [tokens, vocabulary], what each token was drawn from; None if they were chosen greedily.
        confidence: probability of each token in its own distribution.
        masked: whether each token is one that a mask will probably become; empty where nothing is masked.
    """

    tokens: tuple[int, ...] = ()
    distributions: Tensor | None = None
    confidence: tuple[float, ...] = ()
    origin: DraftOrigin = ""
    masked: tuple[bool, ...] = ()

    def first(self, count: int) -> Draft:
        """Its first tokens."""
        if count >= len(self.tokens):
            return self
        distributions = None if self.distributions is None else self.distributions[:count]
        confidence, masked = self.confidence[:count], self.masked[:count]
        return Draft(self.tokens[:count], distributions, confidence, self.origin, masked)


NO_DRAFT = Draft()


class DraftHead(Protocol):
    """Drafts between two forward passes, from what the last one computed: one token after another (`nn/draft_head.py`),
    or a block of them in a few denoising steps (`nn/block_drafter.py`).
    """

    @property
    def origin(self) -> DraftOrigin:
        """Of its drafts."""
        ...

    @property
    def acceptance(self) -> tuple[tuple[float, ...], ...]:
        """How often the first, the first two, … drafts are all accepted: after one denoising step, two, …; one entry
        where drafts are made one after another."""
        ...

    @property
    def block(self) -> int:
        """How many tokens are denoised together; 0 where drafts are made one after another."""
        ...

    def draft(
        self, features: Tensor, tokens: Sequence[int], more: Callable[[Sequence[float]], bool], steps: int = 1
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Draft what follows some tokens.

        Args:
            features: [features] of the row that predicted the first of them (`ForwardInput.on_features`).
            tokens: committed since then; at least one.
            more: whether to draft another token, given the confidence of those before it.
            steps: most denoising steps.

        Returns:
            The drafts, and the confidence in each, provided that those before it are right.
        """
        ...
