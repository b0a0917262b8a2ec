"""How many passes the block in front still gets: by what its first pass shows, and by when a clause should be heard."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from model.answer import Answer
from model.decode import schedule as timing
from model.decode.block import Block
from model.decode.schedule import Schedule
from model.transformer import MASK

_CLAUSE = 10
"""Tokens of a first clause, about: what time is left until it is wanted is shared among the blocks that hold them."""

_SMOOTH = 0.3
"""Weight of the newest pass in the measured time of a pass."""


class Allowance:
    """Counts the passes of one answer's blocks, one block after the other.

    Args:
        answer: whose first clause is waited for.
        deadline: when it is wanted, on `clock`.
    """

    def __init__(
        self, schedule: Schedule, answer: Answer, deadline: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._schedule, self._answer, self._deadline, self._clock = schedule, answer, deadline, clock
        self._wanted = schedule.max_steps
        self._before = 0
        self._until = math.inf
        self._began = clock()
        self._pass_seconds = 0.0

    def begin_pass(self) -> None:
        """A pass begins."""
        self._began = self._clock()

    def end_pass(self) -> None:
        """It ended. Slower passes count at once, quicker ones are believed by and by."""
        seconds = self._clock() - self._began
        old = self._pass_seconds or seconds
        self._pass_seconds = max(seconds, old + _SMOOTH * (seconds - old))

    def next_block(self) -> None:
        """Another block is in front now; nobody knows yet how many passes it needs."""
        self._wanted, self._until = self._schedule.max_steps, math.inf

    def left(self, block: Block) -> int:
        """Passes that the block in front still gets, the one that has just been made included."""
        return max(1, self._wanted - block.passes)

    def look(self, block: Block) -> None:
        """The block has had its first pass in front, and shows how sure it is."""
        guesses = zip(block.tokens, block.guesses.confidence, strict=True)
        unsettled = [confidence for token, confidence in guesses if token == MASK]
        wanted = 1 + timing.passes_needed(unsettled, self._schedule) if unsettled else 1
        self._before = block.passes - 1
        most = max(self._before + 1, self._schedule.max_steps)
        self._wanted = min(self._before + min(wanted, self._schedule.max_steps), most)
        if self._deadline is not None and not self._answer.has_clause:
            start = self._clock() - self._pass_seconds
            self._until = start + (self._deadline - start) / self._blocks_of_clause(block)
        self.weigh(block.passes)

    def weigh(self, passes: int) -> None:
        """The block has had so many passes: take some of the rest away, should its share of the time no longer hold
        them."""
        if self._answer.has_clause or math.isinf(self._until):
            return
        more = math.floor(max(0.0, self._until - self._clock()) / max(self._pass_seconds, 1e-4))
        given = timing.passes_given(self._wanted - self._before, passes - self._before + more)
        self._wanted = self._before + given

    def _blocks_of_clause(self, block: Block) -> int:
        """Blocks that the first clause still needs, this one included."""
        needed = min(_CLAUSE - len(self._answer.tokens), self._answer.left)
        return max(1, math.ceil(needed / len(block.tokens)))
