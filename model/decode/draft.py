"""Draft tokens: tokens that may come next and are not final."""

from __future__ import annotations

from dataclasses import dataclass

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


NO_DRAFT = Draft()
