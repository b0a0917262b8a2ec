"""Steps that the device takes whole (`engine/cuda_graph.py`), as decoding sees them, and what it is told about the
choice of their tokens. `speculative.py` decides which steps it takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from model.decode.constraint import RowRule
from model.decode.draft import Draft
from model.decode.sampling import Sampler
from model.nn.kv_cache import KeyValueCache

MAX_TOP = 20
"""Most likely tokens that the device names, as many as OpenAI's API does."""


@dataclass(frozen=True)
class TokenSettings:
    """How the tokens of a response are chosen, unless they are simply the likeliest ones.

    Attributes:
        sampler: samples them, or takes the likeliest ones.
        num_top: as in `SpeculativeDecoder`, up to `MAX_TOP`.
        restricted: whether each step is told what it may choose (`DeviceSteps.restrict`).
    """

    sampler: Sampler
    num_top: int | None = None
    restricted: bool = False


class DeviceSteps(Protocol):
    """The steps of a conversation, taken whole on the device, including acceptance (`engine.cuda_graph.Attachment`)."""

    @property
    def has_room(self) -> bool:
        """Whether there is room for the conversation's next steps."""

    @property
    def settings(self) -> TokenSettings | None:
        """How tokens are chosen; None if they are the likeliest ones."""

    @property
    def num_drafts(self) -> int:
        """Drafts that a step verifies, as far as is known before it is taken."""

    def restrict(self, drafts: Sequence[int], rules: Sequence[RowRule]) -> None:
        """Tell the next step what it verifies and may choose.

        Args:
            drafts: at most `num_drafts`. They replace those of the step before.
            rules: of the row before each of them, and of the one after the last.
        """

    def detach(self) -> None:
        """Take no more steps. The cache holds what was committed."""


class Attach(Protocol):
    """Lets the device take the steps of a conversation from now on, given its cache, the token after it and drafts.
    None if it cannot."""

    def __call__(
        self, cache: KeyValueCache, last: int, draft: Draft, settings: TokenSettings | None
    ) -> DeviceSteps | None: ...
