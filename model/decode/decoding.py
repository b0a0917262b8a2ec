"""The one interface of both ways of decoding, draft and verify (`verified.py`) and block denoising (`denoise.py`), and
the loop that writes an answer with either.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from model.answer import Answer
from model.decode.draft import Draft


@dataclass(frozen=True)
class Step:
    """What a pass came to.

    Attributes:
        committed: tokens that are final.
        draft: what stands behind them and may still change.
    """

    committed: Sequence[int]
    draft: Draft


class Decoding(Protocol):
    """One answer in the making; its state is its own."""

    def ahead(self) -> Any:
        """The next pass: `Rows`, or whole passes on the device (`Strider`)."""
        ...

    def step(self, result: Any) -> Step:
        """What to commit and what stays draft, from the logits [wanted, vocabulary] of those rows, or what the device
        made of its pass."""
        ...

    def close(self) -> None:
        """The answer is done, or dropped: leave the conversation's cache usable."""
        ...


def write(decoding: Decoding, answer: Answer) -> Generator[Any, Any, None]:
    """Yields each pass and is sent its result, until the answer is finished."""
    try:
        while answer.finished is None:
            step = decoding.step((yield decoding.ahead()))
            answer.add(step.committed, step.draft)
    finally:
        decoding.close()
