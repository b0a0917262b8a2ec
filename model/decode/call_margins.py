"""Choices within tool calls that small models make badly: whether another call follows, and whether an optional
argument is given. Left alone, they make a single call and fill in every argument."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from model.decode.call_decision import CallThresholds
from model.decode.constraint import RowRule, mask_logits
from model.decode.grammar_compiler import JSONStructure
from model.decode.token_set import TokenSet, contains, packed, unpacked

MORE_PER_CALL = 1.5
"""How much likelier text must be for each call after the second, nats: once a model has made two, it likes to go on."""


class CallMargins:
    """Makes these choices with the model's calibrated thresholds.

    Args:
        structure: the tokenizer's.
        control: the tokenizer's control tokens, of which some end a response.
    """

    def __init__(self, structure: JSONStructure, control: Sequence[int], thresholds: CallThresholds) -> None:
        self._structure, self._thresholds = structure, thresholds
        tokens = np.zeros(8 * len(structure.newline), np.bool_)
        tokens[list(control)] = True
        self._control = packed(tokens)

    def mask(self, logits: Tensor, allowed: TokenSet, written: Sequence[int], several_bonus: float = 0.0) -> None:
        """Mask the logits [vocabulary] of a choice, in place.

        Args:
            written: the calls so far.
            several_bonus: see `CallDecision`.
        """
        allowed = allowed & ~self._structure.with_newline  # one could begin another call before that is decided
        if self._may_end(allowed):
            allowed = allowed & (
                ~self._control if self._another_follows(logits, written, several_bonus) else self._control
            )
        lowered = self._lowered(allowed, written)
        if lowered is not None:
            tokens = torch.from_numpy(np.flatnonzero(unpacked(lowered, len(logits))))
            logits[tokens.to(logits.device)] -= self._thresholds.optional
        mask_logits(logits, allowed)

    def rule(self, allowed: TokenSet, written: Sequence[int]) -> RowRule | None:
        """What `mask` does; None if that depends on the logits: where another call may follow."""
        allowed = allowed & ~self._structure.with_newline
        if self._may_end(allowed):
            return None
        return RowRule(allowed, self._lowered(allowed, written), self._thresholds.optional)

    def text_score(self, logits: Tensor) -> float:
        """Log probability that text follows, whatever it is, and not the end: [vocabulary] → nats."""
        control = torch.from_numpy(unpacked(self._control, len(logits))).to(logits.device)
        return float(logits.masked_fill(control, -torch.inf).logsumexp(0) - logits.logsumexp(0))

    def _may_end(self, allowed: TokenSet) -> bool:
        """Whether the calls may end, and another may follow."""
        return bool((allowed & self._control).any() and (allowed & self._structure.newline).any())

    def _lowered(self, allowed: TokenSet, written: Sequence[int]) -> TokenSet | None:
        """The tokens that go on with an optional argument, if the call may end instead. What a first call has, another
        has if the model says so."""
        for more, end in (self._structure.after_string, self._structure.after_other):
            may_go_on, may_end = bool((allowed & more).any()), bool((allowed & end).any())
            if may_go_on and may_end:
                return more if len(self._calls(written)) <= 1 else None
            if may_go_on or may_end:
                break  # within a string, commas and braces are text
        return None

    def _another_follows(self, logits: Tensor, written: Sequence[int], several_bonus: float) -> bool:
        """Whether another call follows: not after one that repeats another."""
        calls = self._calls(written)
        if calls and calls[-1] in calls[:-1]:
            return False
        least = self._thresholds.another + MORE_PER_CALL * max(0, len(calls) - 1)
        return self.text_score(logits) + several_bonus > least

    def _calls(self, written: Sequence[int]) -> list[tuple[int, ...]]:
        """The tokens of each call. Line breaks separate calls and tags."""
        lines: list[list[int]] = [[]]
        for token in written:
            if contains(self._structure.newline, token):
                lines.append([])
            else:
                lines[-1].append(token)
        return [tuple(line) for line in lines if len(line) > 1]
