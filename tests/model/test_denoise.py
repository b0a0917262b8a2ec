"""The passes of block denoising on a virtual clock, with logits made up: what a block is given, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest
import torch
from torch import Tensor

from model.answer import Answer
from model.cache import KeyValueCache
from model.decode.decoding import write
from model.decode.denoise import Denoiser
from model.decode.schedule import FEWEST, Schedule
from model.families import Denoising
from model.sampling import Rule
from model.transformer import MASK, Rows
from model.weights import DecoderConfig

CONFIG = DecoderConfig("llama", "llama", 40, 8, 2, 2, 1, 4, 16, 512, 1e-6)
POINT = 39


class Said(Answer):
    """An answer whose tokens are words of their own; POINT closes a clause, and nothing ends it but its budget."""

    def __init__(self, budget: int) -> None:
        super().__init__(_Words(), frozenset(), budget, 0, 0, lambda progress: None)  # type: ignore[arg-type]

    def closes(self, token: int) -> bool:
        return token == POINT


class _Words:
    def stream(self) -> _Words:
        return self

    def push(self, token: int) -> str:
        return "." if token == POINT else "w"

    def decode(self, ids: object) -> str:
        return ""


@dataclass
class Machine:
    """Runs passes of a second each.

    Attributes:
        slow_from: the pass from which on they take ten.
        firsts: tokens of the first block as each pass found them.
    """

    how: Denoising
    schedule: Schedule
    answer: Said
    deadline: float | None = None
    slow_from: int = 1000
    now: float = 0.0
    firsts: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cache = KeyValueCache(CONFIG, torch.float32, torch.device("cpu"))
        self.denoiser = Denoiser(
            self.cache, [1, 2, 3, 4], self.how, self.schedule, Rule(), self.answer, 512,
            deadline=self.deadline, clock=lambda: self.now,
        )  # fmt: skip

    def write(self, chance: float, later: float | None = None, token: int = 7, seeds: int = 7) -> int:
        """Passes until the answer ends. Clean rows say `seeds`; blocks say `token` with this chance, those behind the
        first with chance `later`."""
        passes = write(self.denoiser, self.answer)
        rows, count = next(passes), 0
        while True:
            count += 1
            self.now += 1.0 if count < self.slow_from else 10.0
            self.firsts.append(self.denoiser._blocks[0].tokens)
            try:
                rows = passes.send(self._logits(rows, chance, chance if later is None else later, token, seeds))
            except StopIteration:
                return count

    def _logits(self, rows: Rows, chance: float, later: float, token: int, seeds: int) -> Tensor:
        sizes = [len(block.tokens) for block in self.denoiser._blocks]
        clean, size = len(rows.tokens) - sum(sizes), CONFIG.vocab_size
        said = [(seeds, 0.9)] * clean + [(token, chance)] * sizes[0] + [(token, later)] * sum(sizes[1:])
        spread = torch.stack([torch.full((size,), (1 - sure) / (size - 1)) for _, sure in said])
        for row, (wanted, sure) in zip(spread, said, strict=True):
            row[wanted] = sure
        return spread.log()[len(said) - rows.wanted :]


def blocks_of(size: int, *, seeded: bool = False, text: Literal["causal", "block"] = "causal") -> Denoising:
    return Denoising(mask=0, block=size, text=text, seeded=seeded)


def test_a_block_that_was_begun_early_is_told_how_many_passes_it_needs() -> None:
    """With several in flight the second block has had passes when it becomes the first. It is nearly sure of its
    tokens, so it needs two passes, not all eight."""
    machine = Machine(blocks_of(8), Schedule(bound=0.99, max_steps=8, in_flight=2), Said(16))
    told: list[int] = []
    allowance = machine.denoiser._allowance
    look = allowance.look
    allowance.look = lambda block: told.append(block.passes) or look(block)  # type: ignore[method-assign,func-returns-value]
    machine.write(0.97)
    assert len(told) == 2  # once for each block
    assert told[1] > 1  # though it had passes before


def test_a_deadline_counts_for_a_block_that_was_begun_early() -> None:
    """The first of two blocks in flight takes eight quick passes; the second becomes the first with the time over."""
    schedule = Schedule(bound=0.99, max_steps=12, in_flight=2)
    machine = Machine(blocks_of(8), schedule, Said(16), deadline=16.0, slow_from=9)
    assert machine.write(0.2) == 8 + FEWEST


def test_the_text_before_a_block_that_was_begun_early_still_says_its_first_token() -> None:
    """Blocks guess 7; the clean row before each says 9. A block that began with its own 7 is masked again behind 9."""
    machine = Machine(blocks_of(4, seeded=True), Schedule(bound=0.95, max_steps=8, in_flight=3), Said(12))
    machine.write(0.6, 0.99, token=7, seeds=9)
    assert machine.answer.tokens == [9, 7, 7, 7] * 3
    assert any(tokens[0] == 7 for tokens in machine.firsts)  # it had settled another one, and none of that was said


@pytest.mark.parametrize("size", [2, 4, 5])
def test_a_deadline_is_shared_by_the_small_blocks_that_a_clause_needs(size: int) -> None:
    """Ten tokens in blocks of a few, a second a pass: the clause is there in time, and the first block did not take
    all of it while those behind it got the fewest."""
    blocks = -(-10 // size)
    deadline = 3.0 * blocks
    machine = Machine(blocks_of(size), Schedule(bound=0.99, max_steps=8), Said(10), deadline)
    machine.write(0.05)
    assert machine.now <= deadline
    given = [sum(tokens.count(MASK) == size for tokens in machine.firsts)]  # each block is all masks once
    assert given == [blocks]
    starts = [n for n, tokens in enumerate(machine.firsts) if tokens.count(MASK) == size]
    lengths = [after - before for before, after in zip(starts, [*starts[1:], len(machine.firsts)], strict=True)]
    assert max(lengths) - min(lengths) <= 1


def test_what_is_left_of_the_time_goes_to_one_block_where_it_holds_a_clause() -> None:
    machine = Machine(blocks_of(16), Schedule(bound=0.99, max_steps=8), Said(16), deadline=8.0)
    assert machine.write(0.05) == 8


def test_a_machine_that_slows_down_takes_passes_away_in_the_middle_of_a_block() -> None:
    """Seconds a pass at first, then ten: what was affordable is weighed again after each."""
    machine = Machine(blocks_of(16), Schedule(bound=0.99, max_steps=8), Said(16), deadline=8.0, slow_from=3)
    assert machine.write(0.05) == 3  # two quick ones, and the slow one that told
    assert machine.now == 12.0
