"""An opening that depends on what the model computes for the end of the prompt, at no forward pass more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from model.decode.constraint import Constraint, mask_logits
from model.decode.option_tree import OptionTree
from model.decode.sampling import Sampler


class ConditionalOpening:
    """A `Constraint` that begins some responses with a text. A tool call has no opening.

    Args:
        constraint: what the response is held to otherwise.
        choose: the tokens that the response begins with, or none, given the features [features] of the row that
            predicts its first token. Called once, and not if the response is a call.
    """

    def __init__(self, constraint: Constraint, choose: Callable[[Tensor], Sequence[int]]) -> None:
        self._constraint, self._choose = constraint, choose
        self._features: Tensor | None = None
        self._is_open = True
        self._opening: tuple[int, ...] = ()

    @property
    def active(self) -> bool:
        """Whether the next tokens are restricted, or it is not decided yet whether they are."""
        return self._is_open or bool(self._opening) or self._constraint.active

    @property
    def in_call(self) -> bool:
        """See `Constraint`."""
        return self._constraint.in_call

    @property
    def observes(self) -> bool:
        """Whether it waits for the features of the first step."""
        return (self._is_open and self._features is None) or self._constraint.observes

    def observe(self, features: Tensor) -> None:
        """See `Constraint`."""
        self._features = features
        self._constraint.observe(features)

    @property
    def options(self) -> OptionTree | None:
        """See `Constraint`."""
        return self._constraint.options

    def choose(self, logits: Tensor) -> int | None:
        """See `Constraint`."""
        return self._constraint.choose(logits)

    def start(self) -> tuple[int, ...]:
        """See `Constraint`."""
        return self._constraint.start()

    def restrict(self, logits: Tensor, draft: Sequence[int], copied: Sequence[int] = ()) -> None:
        """Mask the logits; see `Constraint`. The opening is chosen once it is certain that the response is no call."""
        self._constraint.restrict(logits, draft, copied)
        if self._is_open and self._constraint.options is None:
            self._is_open = False
            if self._features is not None and not self._constraint.in_call:
                self._opening = tuple(self._choose(self._features))
        if self._opening:
            logits[0, self._opening[0]] = 0.0  # whatever the constraint says of it
            mask_logits(logits[0], self._opening[0])

    def accepted_length(self, tokens: Sequence[int]) -> int:
        """Only the first token of an opening: the rest of it follows."""
        return 1 if self._opening else self._constraint.accepted_length(tokens)

    def allowed_length(self, tokens: Sequence[int]) -> int:
        """See `Constraint`. An opening is forced, so nothing is drafted before it."""
        return self._constraint.allowed_length(tokens)

    def commit(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Record committed tokens; returns the rest of the opening after its first token."""
        following = self._constraint.commit(tokens)
        if not tokens or not self._opening:
            return following
        opening, self._opening = self._opening, ()
        return opening[1:] if tokens[0] == opening[0] else following

    def guess(self, limit: int) -> tuple[int, ...]:
        """See `Constraint`."""
        return self._constraint.guess(limit)

    def advance(self, token: int | None, logits: Tensor, sampler: Sampler) -> int | None:
        """See `Constraint`: blocks have no opening."""
        return self._constraint.advance(token, logits, sampler)
