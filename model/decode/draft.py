"""Draft tokens: tokens that may come next and are not final."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from chat.progress import DraftOrigin
from model.nn.batch_drafter import BatchDrafter

if TYPE_CHECKING:  # conversion runs on machines without llvmlite
    from model.nn.cpu.block_drafter import BlockQuantizedDrafter
    from model.nn.cpu.draft_head import BlockQuantizedDraftHead


@dataclass(frozen=True)
class Draft:
    """Unverified tokens that may come next.

    Attributes:
        confidence: probability of each token in its own distribution.
        masked: whether each token is one that a mask will probably become; empty where nothing is masked.
    """

    tokens: tuple[int, ...] = ()
    confidence: tuple[float, ...] = ()
    origin: DraftOrigin = ""
    masked: tuple[bool, ...] = ()

    def first(self, count: int) -> Draft:
        """Its first tokens."""
        if count >= len(self.tokens):
            return self
        return Draft(self.tokens[:count], self.confidence[:count], self.origin, self.masked[:count])


NO_DRAFT = Draft()

DraftHead: TypeAlias = "BlockQuantizedDraftHead | BlockQuantizedDrafter | BatchDrafter"
"""Drafts between two forward passes, from what the last one computed: one token after another, or a block of them in a
few denoising steps."""
