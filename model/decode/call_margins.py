"""Choices within tool calls that small models make badly: whether another call follows, and whether an optional
argument is given. Left alone, they make a single call and fill in every argument."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from model.decode.call_decision import CallThresholds
from model.decode.constraint import mask_logits
from model.decode.grammar_compiler import JSONStructure

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
        self._control = np.zeros_like(structure.newline)
        self._control[list(control)] = True

    def mask(
        self, logits: Tensor, allowed: npt.NDArray[np.bool_], written: Sequence[int], several_bonus: float = 0.0
    ) -> None:
        """Mask the logits [vocabulary] of a choice, in place.

        Args:
            written: the calls so far.
            several_bonus: see `CallDecision`.
        """
        structure = self._structure
        allowed = allowed & ~structure.with_newline  # one could begin another call before that is decided
        if (allowed & self._control).any() and (allowed & structure.newline).any():
            allowed = allowed & (
                ~self._control if self._another_follows(logits, written, several_bonus) else self._control
            )
        is_first = len(self._calls(written)) <= 1  # what a first call has, another has if the model says so
        for more, end in (structure.after_string, structure.after_other):
            if is_first and (allowed & end).any() and (allowed & more).any():
                logits[torch.from_numpy(more).to(logits.device)] -= self._thresholds.optional
            if (allowed & (more | end)).any():
                break  # within a string, commas and braces are text
        mask_logits(logits, allowed)

    def text_score(self, logits: Tensor) -> float:
        """Log probability that text follows, whatever it is, and not the end: [vocabulary] → nats."""
        control = torch.from_numpy(self._control).to(logits.device)
        return float(logits.masked_fill(control, -torch.inf).logsumexp(0) - logits.logsumexp(0))

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
            if self._structure.newline[token]:
                lines.append([])
            else:
                lines[-1].append(token)
        return [tuple(line) for line in lines if len(line) > 1]
