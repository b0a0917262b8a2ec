"""Lays out the passes of block denoising: what has been finished is clean text in front, blocks of masks behind it.

Where finished text cannot see what comes later (causal and block-causal families) its keys are exact and are written
once, in the same pass that first looks at the next block. Where everything sees everything (LLaDA, Dream) they are an
approximation that holds for one block: prompt and finished blocks are read again when the next one begins (Fast-dLLM,
arXiv 2505.22618, prefix cache).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from model.answer import Answer
from model.attention import blocks_mask, text_mask
from model.cache import KeyValueCache
from model.decode.allowance import Allowance
from model.decode.block import Block, cut, fresh, step
from model.decode.decoding import Step
from model.decode.draft import Draft
from model.decode.schedule import Schedule
from model.families import Denoising
from model.sampling import Rule
from model.transformer import MASK, Rows

_FEWEST = 3
"""Tokens of a block that is ended early at punctuation, at least."""

_NEXT_AT = 0.5
"""Share of the last block in flight that is settled when the next one is begun (D2F, block_add_threshold)."""


def reading_start(denoising: Denoising, ids: Sequence[int]) -> int:
    """How much of a prompt is read before the first block: the rest stands in front of the block or opens it."""
    if denoising.text == "bidirectional":
        return 0
    whole = _whole(denoising, ids)  # what stands before the first block
    behind = denoising.block if denoising.text == "block" else 1
    return max(0, whole - behind) if denoising.shift or denoising.seeded else whole


def _whole(denoising: Denoising, ids: Sequence[int]) -> int:
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
        self._context, self._gated = context, gated
        self._allowance = Allowance(schedule, answer, deadline, clock)
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
        self._before: Tensor | None = None
        self._front: list[int] = []
        """Clean tokens that are run in front of the blocks: what is finished and not in the cache."""

    def ahead(self) -> Rows:
        """The rows of the next pass."""
        if not self._exact and self._arrived:
            self._cache.truncate(0)
        front = self._front = self._text[len(self._cache.tokens) :]
        self._allowance.begin_pass()
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

    def step(self, logits: Tensor) -> Step:
        """What that pass came to: keys of finished text, settled tokens, committed ones."""
        self._allowance.end_pass()
        front = self._front
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
        if not self._arrived:
            self._allowance.weigh(self._blocks[0].passes + 1)
        at = 0
        for number, block in enumerate(self._blocks):
            left = self._allowance.left(block) if number == 0 else self._schedule.max_steps
            piece = about[at : at + len(block.tokens)]
            self._blocks[number] = step(block, piece, self._schedule, self._rule, left, forced=number == 0)
            at += len(block.tokens)
        if self._arrived:
            self._allowance.look(self._blocks[0])
            self._arrived = False
        return Step(self._commit(), self._draft())

    def close(self) -> None:
        """The cache holds finished text only, whenever the answer is dropped."""

    def _seed(self) -> None:
        """The clean row before a block says its first token, where the family does so. What has been settled behind
        another first token is masked again."""
        block = self._blocks[0]
        if self._how.seeded and self._arrived and block.given == 0 and self._before is not None:
            token = self._rule.draw(self._before)
            rest = block.tokens[1:] if block.tokens[0] in (MASK, token) else (MASK,) * (len(block.tokens) - 1)
            self._blocks[0] = replace(block, tokens=(token, *rest), given=1)

    def _commit(self) -> list[int]:
        """What is final now; begins the next block when this one is done."""
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
            self._arrived = True
            self._allowance.next_block()
            del self._blocks[0], self._given[0]
            if self._how.seeded:
                break  # the text that ends here says what the next block begins with
        last = self._blocks[-1] if self._blocks else None
        room = len(self._blocks) < self._schedule.in_flight
        if last is None or (room and last.masked <= len(last.tokens) * (1 - _NEXT_AT)):
            self._begin(force=last is None)
        return committed

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
