"""Draft tokens: tokens that may come next and are not final."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

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


@dataclass(frozen=True)
class Alternative:
    """What a step verifies beside its draft.

    Attributes:
        after: how many of the draft's tokens come before it.
        tokens: what follows these, instead of the others.
    """

    after: int
    tokens: tuple[int, ...]


class Path(NamedTuple):
    """A text that a step verifies: the draft, or an alternative and what comes before it.

    Attributes:
        tokens: those after the last committed token.
        rows: of the last committed token and of each of these.
        shared: how many of these rows, from the first, an earlier path has as well.
    """

    tokens: tuple[int, ...]
    rows: tuple[int, ...]
    shared: int = 0


def paths(draft: Sequence[int], alternatives: Sequence[Alternative] = ()) -> list[Path]:
    """What a step with this draft and these alternatives verifies, the draft first."""
    found, next_row = [Path(tuple(draft), tuple(range(1 + len(draft))))], 1 + len(draft)
    for one in alternatives:
        end = next_row + len(one.tokens)
        rows = (*range(1 + one.after), *range(next_row, end))
        found.append(Path((*draft[: one.after], *one.tokens), rows, 1 + one.after))
        next_row = end
    return found


DraftHead: TypeAlias = "BlockQuantizedDraftHead | BlockQuantizedDrafter | BatchDrafter"
"""Drafts between two forward passes, from what the last one computed: one token after another, or a block of them in a
few denoising steps."""
