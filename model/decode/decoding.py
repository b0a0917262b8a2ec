"""The loop that generates a response, with speculative decoding or with block diffusion."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from model.decode.diffusion import DiffusionDecoder
from model.decode.output import GenerationOutput
from model.decode.speculative import SpeculativeDecoder


def generate(
    decoding: SpeculativeDecoder | DiffusionDecoder,
    output: GenerationOutput,
    is_wanted: Callable[[], bool] = lambda: True,
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
