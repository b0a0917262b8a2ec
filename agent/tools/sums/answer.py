"""The answer to a question that can be computed."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from agent.tools.sums.quantities import Quantity


@dataclass(frozen=True)
class Answer:
    """The answer to a question.

    Attributes:
        speech: what is said.
        tokens: the question in words that need no earlier one.
        number: the result, which "that" may refer to.
        quantity: the result, if it has a unit.
    """

    speech: str
    tokens: tuple[str, ...]
    number: Fraction | None = None
    quantity: Quantity | None = None
