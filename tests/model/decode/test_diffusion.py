"""The steps of block diffusion on a virtual clock with made-up logits: how many steps a block gets, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest
import torch
from torch import Tensor

from model.checkpoint.architectures import DiffusionConfig
from model.checkpoint.checkpoint import DecoderConfig
from model.decode.block import Block
from model.decode.decoding import generate
from model.decode.diffusion import DiffusionDecoder
from model.decode.effort import MIN_STEPS, DenoisingSchedule
from model.decode.output import GenerationOutput
from model.decode.sampling import Sampler
from model.nn.forward_batch import MASK, ForwardInput
from model.nn.kv_cache import KeyValueCache

CONFIG = DecoderConfig("llama", "llama", 40, 8, 2, 2, 1, 4, 16, 512, 1e-6)
PERIOD = 39
"""The token that ends a clause."""


class FakeOutput(GenerationOutput):
    """An output in which every token is a word, and only the token limit ends the response."""

    def __init__(self, max_tokens: int) -> None:
        super().__init__(_Words(), frozenset(), max_tokens, 0, 0, lambda progress: None)  # type: ignore[arg-type]

    def ends_clause(self, token: int) -> bool:
        return token == PERIOD


class _Words:
    def detokenizer(self) -> _Words:
        return self

    def __call__(self, token: int) -> str:
        return "." if token == PERIOD else "w"

    def decode(self, ids: object) -> str:
        return ""


@dataclass
class Simulation:
    """Runs a decoder with steps of one second each.

    Attributes:
        slow_from: the number of the step from which on they take ten seconds.
        first_blocks: tokens of the first block before each step.
    """

    diffusion: DiffusionConfig
    schedule: DenoisingSchedule
    output: FakeOutput
    deadline: float | None = None
    slow_from: int = 1000
    now: float = 0.0
    first_blocks: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cache = KeyValueCache(CONFIG, torch.float32, torch.device("cpu"))
        self.decoder = DiffusionDecoder(
            self.cache, [1, 2, 3, 4], self.diffusion, self.schedule, Sampler(), self.output, 512,
            deadline=self.deadline, clock=lambda: self.now,
        )  # fmt: skip

    def run(
        self, confidence: float, later_confidence: float | None = None, token: int = 7, first_token: int = 7
    ) -> int:
        """Generate the response and return the number of steps.

        Clean rows predict `first_token`. The first block predicts `token` with `confidence`, later blocks with
        `later_confidence`.
        """
        if later_confidence is None:
            later_confidence = confidence
        steps = generate(self.decoder, self.output)
        forward_input, count = next(steps), 0
        while True:
            count += 1
            self.now += 1.0 if count < self.slow_from else 10.0
            self.first_blocks.append(self.decoder._blocks[0].tokens)
            logits = self._logits(forward_input, confidence, later_confidence, token, first_token)
            try:
                forward_input = steps.send(logits)
            except StopIteration:
                return count

    def _logits(
        self, forward_input: ForwardInput, confidence: float, later_confidence: float, token: int, first_token: int
    ) -> Tensor:
        sizes = [len(block.tokens) for block in self.decoder._blocks]
        clean, vocabulary = len(forward_input.tokens) - sum(sizes), CONFIG.vocab_size
        predictions = [(first_token, 0.9)] * clean
        predictions += [(token, confidence)] * sizes[0] + [(token, later_confidence)] * sum(sizes[1:])
        rows = [torch.full((vocabulary,), (1 - probability) / (vocabulary - 1)) for _, probability in predictions]
        distributions = torch.stack(rows)
        for row, (predicted, probability) in zip(distributions, predictions, strict=True):
            row[predicted] = probability
        return distributions.log()[len(predictions) - forward_input.num_outputs :]


def blocks_of(
    size: int, *, first_token_from_prefix: bool = False, text: Literal["causal", "block"] = "causal"
) -> DiffusionConfig:
    return DiffusionConfig(
        mask_token=0, block_size=size, text_attention=text, first_token_from_prefix=first_token_from_prefix
    )


def test_a_block_that_was_begun_early_gets_its_own_step_estimate() -> None:
    """With several blocks in flight the second one has had steps when it becomes the first. It is nearly certain of its
    tokens, so it needs two more steps, not all eight."""
    simulation = Simulation(blocks_of(8), DenoisingSchedule(bound=0.99, max_steps=8, in_flight=2), FakeOutput(16))
    estimated_at: list[int] = []
    budget = simulation.decoder._step_budget
    set_from_first_step = budget.set_from_first_step

    def record(block: Block) -> None:
        estimated_at.append(block.steps)
        set_from_first_step(block)

    budget.set_from_first_step = record  # type: ignore[method-assign]
    simulation.run(0.97)
    assert len(estimated_at) == 2  # once for each block
    assert estimated_at[1] > 1  # although it had steps before


def test_a_deadline_applies_to_a_block_that_was_begun_early() -> None:
    """The first of two blocks in flight takes eight fast steps; the second becomes the first after the deadline."""
    schedule = DenoisingSchedule(bound=0.99, max_steps=12, in_flight=2)
    simulation = Simulation(blocks_of(8), schedule, FakeOutput(16), deadline=16.0, slow_from=9)
    assert simulation.run(0.2) == 8 + MIN_STEPS


def test_the_prefix_sets_the_first_token_of_a_block_that_was_begun_early() -> None:
    """Blocks predict 7; the clean row before each predicts 9. A block that began with its own 7 is masked again after
    the 9."""
    diffusion = blocks_of(4, first_token_from_prefix=True)
    simulation = Simulation(diffusion, DenoisingSchedule(bound=0.95, max_steps=8, in_flight=3), FakeOutput(12))
    simulation.run(0.6, 0.99, token=7, first_token=9)
    assert simulation.output.tokens == [9, 7, 7, 7] * 3
    assert any(tokens[0] == 7 for tokens in simulation.first_blocks)  # it had another first token, never committed


@pytest.mark.parametrize("size", [2, 4, 5])
def test_a_deadline_is_shared_by_the_small_blocks_that_a_clause_needs(size: int) -> None:
    """Ten tokens in small blocks, one second per step: the clause is complete in time, and the first block does not use
    up the time of those after it."""
    blocks = -(-10 // size)
    deadline = 3.0 * blocks
    simulation = Simulation(blocks_of(size), DenoisingSchedule(bound=0.99, max_steps=8), FakeOutput(10), deadline)
    simulation.run(0.05)
    assert simulation.now <= deadline
    starts = [n for n, tokens in enumerate(simulation.first_blocks) if tokens.count(MASK) == size]
    assert len(starts) == blocks  # each block is all masks once
    ends = [*starts[1:], len(simulation.first_blocks)]
    lengths = [end - start for start, end in zip(starts, ends, strict=True)]
    assert max(lengths) - min(lengths) <= 1


def test_a_block_that_holds_the_whole_clause_gets_all_the_time_until_the_deadline() -> None:
    schedule = DenoisingSchedule(bound=0.99, max_steps=8)
    simulation = Simulation(blocks_of(16), schedule, FakeOutput(16), deadline=8.0)
    assert simulation.run(0.05) == 8


def test_a_slowdown_removes_steps_in_the_middle_of_a_block() -> None:
    """Steps take one second at first, then ten: what is affordable is computed again after each step."""
    schedule = DenoisingSchedule(bound=0.99, max_steps=8)
    simulation = Simulation(blocks_of(16), schedule, FakeOutput(16), deadline=8.0, slow_from=3)
    assert simulation.run(0.05) == 3  # two fast steps, and the slow one
    assert simulation.now == 12.0
