"""The interface of speculative decoding (`speculative.py`) and block diffusion (`diffusion.py`), and the loop that
generates a response with either."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from model.decode.draft import Draft
from model.decode.log_probabilities import TokenLogProbability
from model.decode.output import GenerationOutput


@dataclass(frozen=True)
class StepOutput:
    """The result of one step.

    Attributes:
        committed: tokens that are now final.
        log_probabilities: of each committed token, if they were asked for.
    """

    committed: Sequence[int]
    log_probabilities: Sequence[TokenLogProbability] = ()


class DecodingStrategy(Protocol):
    """Decodes one response, and holds its state."""

    def next_input(self) -> Any:
        """The input of the next step: a `ForwardInput`, or an `Attachment` whose steps the device takes."""
        ...

    def step(self, result: Any) -> StepOutput:
        """Decide what to commit.

        Args:
            result: the logits [num_outputs, vocabulary] of the forward pass, or the result of the device's step.
        """
        ...

    def draft(self, remaining: int) -> Draft:
        """Draft what the next step verifies or denoises, and return it. Called after a step, once its tokens have been
        reported, unless nobody waits for more.

        Args:
            remaining: how many more tokens the response may have; at least one.
        """
        ...

    def close(self) -> None:
        """Leave the conversation's cache in a usable state. Called when the response is complete or cancelled."""
        ...


def generate(
    decoding: DecodingStrategy, output: GenerationOutput, is_wanted: Callable[[], bool] = lambda: True
) -> Generator[Any, Any, None]:
    """Yields the input of each step and expects its result to be sent, until the response is complete.

    Args:
        is_wanted: whether anybody waits for more; nothing is drafted otherwise.
    """
    try:
        while output.finished is None:
            step = decoding.step((yield decoding.next_input()))
            output.commit(step.committed, step.log_probabilities)
            if output.finished is None and is_wanted():
                output.show(decoding.draft(output.remaining))
    finally:
        decoding.close()
