"""How many steps the first block in flight still gets, from what its first step shows and from the deadline of the
first clause."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from model.decode import effort
from model.decode.block import Block
from model.decode.effort import DenoisingSchedule
from model.decode.output import GenerationOutput
from model.nn.forward_batch import MASK

_CLAUSE_TOKENS = 10
"""Approximate tokens of a first clause. The time until its deadline is shared among the blocks that hold them."""

_TIME_WEIGHT = 0.3
"""Weight of the newest step in the measured time of a step."""


class StepBudget:
    """Counts the steps of a response's blocks, one block after the other.

    Args:
        output: the response whose first clause has a deadline.
        deadline: when the first clause should be complete, on `clock`; None for no deadline.
    """

    def __init__(
        self,
        schedule: DenoisingSchedule,
        output: GenerationOutput,
        deadline: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._schedule, self._output, self._deadline, self._clock = schedule, output, deadline, clock
        self._max_steps = schedule.max_steps
        self._steps_before_first = 0
        self._block_deadline = math.inf
        self._step_began = clock()
        self._step_seconds = 0.0

    def begin_step(self) -> None:
        """Start timing a step."""
        self._step_began = self._clock()

    def end_step(self) -> None:
        """Stop timing a step. A slower step counts fully at once; faster ones lower the estimate gradually."""
        seconds = self._clock() - self._step_began
        old = self._step_seconds or seconds
        self._step_seconds = max(seconds, old + _TIME_WEIGHT * (seconds - old))

    def next_block(self) -> None:
        """Start the budget of the next block. How many steps it needs is not known yet."""
        self._max_steps, self._block_deadline = self._schedule.max_steps, math.inf

    def remaining(self, block: Block) -> int:
        """Steps that the first block in flight still gets, including the one that has just run."""
        return max(1, self._max_steps - block.steps)

    def set_from_first_step(self, block: Block) -> None:
        """Set the budget of a block that has just had its first step as the first block in flight, from the confidence
        of its tokens."""
        pairs = zip(block.tokens, block.predictions.confidence, strict=True)
        masked = [confidence for token, confidence in pairs if token == MASK]
        needed = 1 + effort.steps_needed(masked, self._schedule) if masked else 1
        self._steps_before_first = block.steps - 1
        limit = max(self._steps_before_first + 1, self._schedule.max_steps)
        self._max_steps = min(self._steps_before_first + min(needed, self._schedule.max_steps), limit)
        if self._deadline is not None and not self._output.has_clause:
            start = self._clock() - self._step_seconds
            self._block_deadline = start + (self._deadline - start) / self._blocks_of_clause(block)
        self.apply_deadline(block.steps)

    def apply_deadline(self, steps: int) -> None:
        """Reduce the budget of a block that has had `steps` steps if the remaining time does not allow the rest."""
        if self._output.has_clause or math.isinf(self._block_deadline):
            return
        affordable = math.floor(max(0.0, self._block_deadline - self._clock()) / max(self._step_seconds, 1e-4))
        before = self._steps_before_first
        self._max_steps = before + effort.steps_allowed(self._max_steps - before, steps - before + affordable)

    def _blocks_of_clause(self, block: Block) -> int:
        """Number of blocks that the first clause still needs, including this one."""
        needed = min(_CLAUSE_TOKENS - len(self._output.tokens), self._output.remaining)
        return max(1, math.ceil(needed / len(block.tokens)))
