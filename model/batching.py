"""Requests under way, and which of them are in the next pass: those that say something, the one first that has not
committed anything for longest; and beside them what is read of prompts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from model.stride import Strider
from model.transformer import Rows

Passes = Generator[Rows | Strider, Any, None]
"""A request: yields the rows of its next pass and is sent their logits (or states), or a stride and is sent its
outcome."""


@dataclass
class Job:
    """A request under way. `fail` and `done` are called on the engine's thread."""

    passes: Passes
    fail: Callable[[Exception], None]
    done: Callable[[], None]
    cancelled: threading.Event = field(default_factory=threading.Event)
    rows: Rows | Strider | None = None
    since: int = 0
    """The pass in which it last committed something, or read a piece; until then, the one before which it arrived."""
    rests_until: float = 0.0
    """It is part of no pass before, on `time.monotonic`."""

    @property
    def size(self) -> int:
        """Rows that it wants in the next pass."""
        if self.rows is None:
            return 0
        return self.rows.rows if isinstance(self.rows, Strider) else len(self.rows.tokens)

    @property
    def reads(self) -> bool:
        """Whether its next pass reads a piece of a prompt."""
        return isinstance(self.rows, Rows) and self.rows.reads

    @property
    def speaks(self) -> bool:
        """Whether its next pass says something."""
        return isinstance(self.rows, Strider) or (
            self.rows is not None and not self.rows.reads and not self.rows.states
        )


def choose(jobs: Sequence[Job], most_rows: int) -> list[Job]:
    """Who is in the next pass: of those that do not read as many as it has room for, the longest without a commit
    first; and one piece of a prompt, or as many as fit, the one first that has waited longest. So prompts delay no
    one's next words by more than one pass, however long they are and however many arrive.

    Args:
        most_rows: rows of a pass; one request, and one piece of a prompt, may be larger.
    """
    chosen: list[Job] = []
    for job in sorted(jobs, key=lambda job: (job.reads, job.since)):
        first = all(other.reads != job.reads for other in chosen)
        if first or sum(other.size for other in chosen) + job.size <= most_rows:
            chosen.append(job)
    return chosen
