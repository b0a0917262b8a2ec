"""The interface of speculative decoding (`speculative.py`) and block diffusion (`diffusion.py`), and the loop that
generates a response with either."""

from __future__ import annotations

from collections.abc import Generator, Sequence
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
        draft: tokens that may follow them and may still change.
        log_probabilities: of each committed token, if they were asked for.
    """

    committed: Sequence[int]
    draft: Draft
    log_probabilities: Sequence[TokenLogProbability] = ()


class DecodingStrategy(Protocol):
    """Decodes one response, and holds its state."""

    def next_input(self) -> Any:
        """The input of the next step: a `ForwardInput`, or an `Attachment` whose steps the device takes."""
        ...

    def step(self, result: Any) -> StepOutput:
        """Decide what to commit and what remains a draft.

        Args:
            result: the logits [num_outputs, vocabulary] of the forward pass, or the result of the device's step.
        """
        ...

    def close(self) -> None:
        """Leave the conversation's cache in a usable state. Called when the response is complete or cancelled."""
        ...


def generate(decoding: DecodingStrategy, output: GenerationOutput) -> Generator[Any, Any, None]:
    """Yields the input of each step and expects its result to be sent, until the response is complete."""
    try:
        while output.finished is None:
            step = decoding.step((yield decoding.next_input()))
            output.add(step.committed, step.draft, step.log_probabilities)
    finally:
        decoding.close()
