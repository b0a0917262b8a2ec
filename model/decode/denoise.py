"""Lays out the passes of block denoising: what has been finished is clean text in front, blocks of masks behind it.

Where finished text cannot see what comes later (causal and block-causal families) its keys are exact and are written
once, in the same pass that first looks at the next block. Where everything sees everything (LLaDA, Dream) they are an
approximation that holds for one block: prompt and finished blocks are read again when the next one begins (Fast-dLLM,
arXiv 2505.22618, prefix cache).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from model.answer import Answer
from model.attention import blocks_mask, text_mask
from model.cache import KeyValueCache
from model.decode import schedule as timing
from model.decode.block import Block, cut, fresh, step
from model.decode.draft import Draft
from model.decode.schedule import Schedule
from model.families import Denoising
from model.sampling import Rule
from model.transformer import MASK, Rows

_FEWEST = 3
"""Tokens of a block that is ended early at punctuation, at least."""

_CLAUSE = 10
"""Tokens of a first clause, about: what time is left until it is wanted is shared among the blocks that hold them."""

_NEXT_AT = 0.5
"""Share of the last block in flight that is settled when the next one is begun (D2F, block_add_threshold)."""

_SMOOTH = 0.3
"""Weight of the newest pass in the measured time of a pass."""


def reading_start(denoising: Denoising, ids: Sequence[int]) -> int:
    """How much of a prompt is read before the first block: the rest stands in front of the block or opens it."""
    if denoising.text == "bidirectional":
        return 0
    whole = _whole(denoising, ids)
    behind = denoising.block if denoising.text == "block" else 1
    return max(0, whole - behind) if denoising.shift or denoising.seeded else whole


def _whole(denoising: Denoising, ids: Sequence[int]) -> int:
    """How much of a prompt stands before the first block."""
    return len(ids) // denoising.block * denoising.block if denoising.aligned else len(ids)


class Denoiser:
    """Writes one answer, block by block.

    Args:
        cache: holds the first `reading_start` tokens of `ids`.
        ids: the prompt.
        context: positions that the model has.
        gated: whether block rows pass through an adapter.
        deadline: when a speakable clause is wanted, on `clock`.
    """

    def __init__(
        self,
        cache: KeyValueCache,
        ids: Sequence[int],
        denoising: Denoising,
        schedule: Schedule,
        rule: Rule,
        answer: Answer,
        context: int,
        *,
        gated: bool = False,
        deadline: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cache, self._how, self._schedule, self._rule, self._answer = cache, denoising, schedule, rule, answer
        self._context, self._gated, self._deadline, self._clock = context, gated, deadline, clock
        self._exact = denoising.text != "bidirectional"
        whole = _whole(denoising, ids)
        self._text = list(ids[:whole])
        """Finished, whether its keys are in the cache or not."""
        self._blocks = [fresh(min(denoising.block, context - whole), tuple(ids[whole:]))]
        self._given = [len(ids) - whole]
        """Tokens of each block that are the prompt's, not the answer's."""
        self._arrived = True
        """Whether the first block has had no pass as the first: nobody knows yet how many it needs, and what stands
        before it is final only now. It may have had passes behind the block before it."""
        self._wanted = schedule.max_steps
        self._before: Tensor | None = None
        self._pass_seconds = 0.0

    def run(self) -> Generator[Rows, Tensor, None]:
        """Yields the rows of each pass, is sent their logits."""
        while self._answer.finished is None:
            front = self._front()
            began = self._clock()
            logits = yield self._rows(front)
            self._measure(self._clock() - began)
            self._settle(front, logits)

    def _front(self) -> list[int]:
        """Clean tokens that are run in front of the blocks: what is finished and not in the cache."""
        if not self._exact and self._arrived:
            self._cache.truncate(0)
        return self._text[len(self._cache.tokens) :]

    def _rows(self, front: list[int]) -> Rows:
        how = self._how
        tokens = [*front, *(token for block in self._blocks for token in block.tokens)]
        past, clean = len(self._cache.tokens), len(front)
        tokens += [MASK] * (0 if self._exact else min(how.canvas - self._behind(), self._context - past - len(tokens)))
        sees = torch.ones(len(tokens), len(tokens), dtype=torch.bool)
        if self._exact:
            text = text_mask(how.text, clean, past, how.block)[:, past:]
            sees = blocks_mask(text, [len(block.tokens) for block in self._blocks], how.inside)
        noise = [self._gated and n >= clean for n in range(len(tokens))]
        wanted = len(tokens) - clean + (clean > 0)
        return Rows(self._cache, tokens, range(past, past + len(tokens)), sees, noise, wanted)

    def _behind(self) -> int:
        """Tokens of the canvas that the answer so far and its blocks take up."""
        written = len(self._answer.tokens) % self._how.canvas
        return min(self._how.canvas, written + sum(len(block.tokens) for block in self._blocks))

    def _settle(self, front: list[int], logits: Tensor) -> None:
        """What a pass came to: keys of finished text, settled tokens, committed ones."""
        if front:
            kept = front if self._exact or not self._how.shift else front[:-1]
            if self._exact or len(front) > 1:
                self._cache.keep(range(len(kept)), kept)
            self._before, logits = logits[0], logits[1:]
        self._seed()
        about = logits[: sum(len(block.tokens) for block in self._blocks)]
        if self._how.shift:
            # Nothing stands before a block that begins the text, and then its first token is given.
            before = about[0] if self._before is None else self._before
            about = torch.cat((before[None], about[:-1]))
        at = 0
        for number, block in enumerate(self._blocks):
            left = max(1, self._wanted - block.passes) if number == 0 else self._schedule.max_steps
            piece = about[at : at + len(block.tokens)]
            self._blocks[number] = step(block, piece, self._schedule, self._rule, left, forced=number == 0)
            at += len(block.tokens)
        if self._arrived:
            self._wanted, self._arrived = self._passes(self._blocks[0]), False
        self._commit()

    def _seed(self) -> None:
        """The clean row before a block says its first token, where the family does so. What has been settled behind
        another first token is masked again."""
        block = self._blocks[0]
        if self._how.seeded and self._arrived and block.given == 0 and self._before is not None:
            spread = self._rule.spread(self._before).cpu()
            token = int(torch.multinomial(spread, 1, generator=self._rule.generator))
            rest = block.tokens[1:] if block.tokens[0] in (MASK, token) else (MASK,) * (len(block.tokens) - 1)
            self._blocks[0] = replace(block, tokens=(token, *rest), given=1)

    def _passes(self, block: Block) -> int:
        """How many passes this block gets, those that it has had included."""
        guesses = zip(block.tokens, block.guesses.confidence, strict=True)
        unsettled = [confidence for token, confidence in guesses if token == MASK]
        wanted = 1 + timing.passes_needed(unsettled, self._schedule) if unsettled else 1
        left = None
        if self._deadline is not None and not self._answer.has_clause:
            left = (self._deadline - self._clock() + self._pass_seconds) / self._until_clause(block)
        wanted = min(wanted, self._schedule.max_steps)
        given = timing.passes_given(wanted, left=left, pass_seconds=self._pass_seconds)
        before = block.passes - 1
        return min(before + given, max(before + 1, self._schedule.max_steps))

    def _until_clause(self, block: Block) -> int:
        """Blocks that the first clause still needs, this one included."""
        needed = min(_CLAUSE - len(self._answer.tokens), self._answer.left)
        return max(1, math.ceil(needed / len(block.tokens)))

    def _commit(self) -> None:
        """Commit what is final; begin the next block when this one is done."""
        committed: list[int] = []
        while self._blocks:
            given, block = self._given[0], self._shortened(self._blocks[0])
            done = block.done(self._schedule)
            until = len(block.tokens) if done else block.given if self._schedule.may_change else block.prefix
            committed += block.tokens[given:until]
            self._given[0] = max(given, until)
            self._blocks[0] = replace(block, given=max(block.given, until))
            if not done:
                break
            self._text += block.tokens
            self._wanted, self._arrived = self._schedule.max_steps, True
            del self._blocks[0], self._given[0]
            if self._how.seeded:
                break  # the text that ends here says what the next block begins with
        last = self._blocks[-1] if self._blocks else None
        room = len(self._blocks) < self._schedule.in_flight
        if last is None or (room and last.masked <= len(last.tokens) * (1 - _NEXT_AT)):
            self._begin(force=last is None)
        self._answer.add(committed, self._draft())

    def _shortened(self, block: Block) -> Block:
        """The first block, ended early at the end token, or at punctuation where blocks may begin anywhere."""
        ended = cut(block, self._answer.stops, self._given[0])
        if not self._how.aligned:
            ended = cut(ended, self._answer.closes, max(self._given[0], _FEWEST))
        if len(ended.tokens) < len(block.tokens):
            del self._blocks[1:], self._given[1:]  # they stand behind what has been cut off
        return ended

    def _begin(self, *, force: bool) -> None:
        """The next block, as long as the model has positions for it."""
        position = len(self._text) + sum(len(block.tokens) for block in self._blocks)
        size = min(self._how.block, self._context - position)
        if size > 0 or force:
            self._blocks.append(fresh(max(1, size)))
            self._given.append(0)

    def _draft(self) -> Draft:
        """What may still change: behind the committed part of each block."""
        drafts = [block.draft() for block in self._blocks if block.passes]
        tokens = tuple(token for draft in drafts for token in draft.tokens)
        return Draft(tokens, None, tuple(c for draft in drafts for c in draft.confidence))

    def _measure(self, seconds: float) -> None:
        old = self._pass_seconds or seconds
        self._pass_seconds = old + _SMOOTH * (seconds - old)
