"""How a response begins, or does not begin, by what the model computes for the end of the prompt anyway."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.decode.constraint import Constraint, RowRule, mask_logits
from model.decode.draft import Path
from model.decode.option_tree import OptionTree
from model.decode.sampling import Sampler


@dataclass(frozen=True)
class Beginning:
    """The beginning of a response.

    Attributes:
        tokens: what it begins with.
        avoided: what it does not begin with: the last token of each is not allowed after the ones before it.
    """

    tokens: Sequence[int] = ()
    avoided: Sequence[tuple[int, ...]] = ()


class ConditionalOpening(Constraint):
    """Begins some responses with a text, or keeps them from beginning with others. A tool call has no opening.

    Args:
        constraint: what the response is held to otherwise.
        choose: how the response begins, given the features [features] of the row that predicts its first token. Called
            once, and not if the response is a call.
    """

    def __init__(self, constraint: Constraint, choose: Callable[[Tensor], Beginning]) -> None:
        super().__init__()
        self._constraint, self._choose = constraint, choose
        self._features: Tensor | None = None
        self._is_open = True
        self._opening: tuple[int, ...] = ()
        self._avoided: Sequence[tuple[int, ...]] = ()
        self._written: list[int] = []

    @property
    def active(self) -> bool:
        """Whether the next tokens are restricted, or it is not decided yet whether they are."""
        return self._is_open or bool(self._opening or self._avoided) or self._constraint.active

    @property
    def in_call(self) -> bool:
        return self._constraint.in_call

    @property
    def observes(self) -> bool:
        """Whether it waits for the features of the first step."""
        return (self._is_open and self._features is None) or self._constraint.observes

    def observe(self, features: Tensor) -> None:
        self._features = features
        self._constraint.observe(features)

    @property
    def options(self) -> OptionTree | None:
        return self._constraint.options

    def choose(self, logits: Tensor) -> int | None:
        return self._constraint.choose(logits)

    def start(self) -> tuple[int, ...]:
        """Nothing: what the constraint forces comes after the row whose features decide."""
        return ()

    def restrict(self, logits: Tensor, paths: Sequence[Path]) -> None:
        """Mask the logits; see `Constraint`. The opening is chosen once it is certain that the response is no call."""
        self._constraint.restrict(logits, paths)
        if self._is_open and self._constraint.options is None:
            self._is_open = False
            if self._features is not None and not self._constraint.in_call:
                beginning = self._choose(self._features)
                self._opening, self._avoided = tuple(beginning.tokens), beginning.avoided
        for path in paths:
            for n in range(path.shared, len(path.rows)):
                self._avoid(logits[path.rows[n]], path.tokens[:n])
        if self._opening:
            logits[0, self._opening[0]] = 0.0  # whatever the constraint says of it
            mask_logits(logits[0], self._opening[0])

    def rules(self, draft: Sequence[int]) -> list[RowRule]:
        """See `Constraint`. None before the beginning is over."""
        return [] if self._is_open or self._opening or self._avoided else self._constraint.rules(draft)

    def accepted_length(self, tokens: Sequence[int]) -> int:
        """Only the first token of an opening: the rest of it follows."""
        return 1 if self._opening else self._constraint.accepted_length(tokens)

    def allowed_length(self, tokens: Sequence[int]) -> int:
        """See `Constraint`. An opening is forced, so nothing is drafted before it."""
        allowed = self._constraint.allowed_length(tokens)
        begun = [*self._written, *tokens[:allowed]]
        ends = (len(one) - 1 - len(self._written) for one in self._avoided if tuple(begun[: len(one)]) == one)
        return min((end for end in ends if end >= 0), default=allowed)

    def commit(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Record committed tokens; returns the rest of the opening after its first token. The constraint does not see
        an opening: the end of the response may be one, where a grammar demands a text."""
        if tokens and self._opening:
            opening, self._opening = self._opening, ()
            return opening[1:]
        following = self._constraint.commit(tokens)
        if self._avoided:
            self._written += [*tokens, *following]
            if len(self._written) >= max(map(len, self._avoided)):
                self._avoided = ()
        return following

    def _avoid(self, logits: Tensor, drafted: Sequence[int]) -> None:
        """Mask what would complete one of the avoided beginnings after these drafts, in one row, in place."""
        for avoided in self._avoided:
            if (*self._written, *drafted) == avoided[:-1]:
                logits[avoided[-1]] = -torch.inf

    def guess(self, limit: int) -> tuple[int, ...]:
        return self._constraint.guess(limit)

    def advance(self, token: int | None, logits: Tensor, sampler: Sampler) -> int | None:
        return self._constraint.advance(token, logits, sampler)
