"""Draft tokens: tokens that may come next and are not final."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from torch import Tensor

from chat.progress import DraftOrigin
from model.nn.batch_drafter import BatchDrafter

if TYPE_CHECKING:  # conversion runs on machines without llvmlite
    from model.nn.cpu.block_drafter import BlockQuantizedDrafter
    from model.nn.cpu.draft_head import BlockQuantizedDraftHead


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

DraftHead: TypeAlias = "BlockQuantizedDraftHead | BlockQuantizedDrafter | BatchDrafter"
"""Drafts between two forward passes, from what the last one computed: one token after another, or a block of them in a
few denoising steps."""
