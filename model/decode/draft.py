"""What may come next and is not final."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Draft:
    """Tokens that may come next, not verified.

    Attributes:
        spread: [tokens, vocabulary], what each was drawn from; None where they were simply the likeliest.
        confidence: probability of each in its own distribution.
    """

    tokens: tuple[int, ...] = ()
    spread: Tensor | None = None
    confidence: tuple[float, ...] = ()


NOTHING = Draft()
"""No draft."""
