"""Block diffusion decoding: builds the forward passes, with finished clean text first and blocks of masks after it.

If finished text cannot attend to later tokens (causal and block-causal families), its keys are exact. They are written
once, in the forward pass that denoises the next block for the first time. If every token attends to every other (LLaDA,
Dream, MDLM), cached keys are an approximation that is kept for one block: the prompt and finished blocks are read again
when the next block begins (Fast-dLLM, arXiv 2505.22618, prefix cache).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from model.checkpoint.architectures import DiffusionConfig
from model.decode.block import Block, denoise_step, new_block, truncate_after
from model.decode.constraint import Constraint
from model.decode.draft import Draft, paths
from model.decode.effort import STEPS_TOKENS, DenoisingSchedule
from model.decode.output import GenerationOutput, StepOutput
from model.decode.sampling import Sampler
from model.decode.step_budget import StepBudget
from model.nn.attention import denoising_mask, text_mask
from model.nn.forward_batch import MASK, ForwardInput
from model.nn.kv_cache import KeyValueCache

_MIN_CLAUSE_TOKENS = 3
"""Fewest tokens of a block that is truncated at punctuation."""

_NEXT_BLOCK_SHARE = 0.5
"""Share of the last block in flight that must be unmasked before the next one begins (D2F, block_add_threshold)."""


def prefill_length(diffusion: DiffusionConfig, ids: Sequence[int]) -> int:
    """Number of prompt tokens to cache before the first block. The rest is run with the block, or begins it."""
    if diffusion.text_attention == "bidirectional" or (diffusion.text_attention == "block" and not diffusion.aligned):
        return 0  # how a prompt is read depends on where it ends
    start = _first_block_start(diffusion, ids)
    uncached = diffusion.block_size if diffusion.text_attention == "block" else 1
    return max(0, start - uncached) if diffusion.predicts_next_token or diffusion.first_token_from_prefix else start


def _first_block_start(diffusion: DiffusionConfig, ids: Sequence[int]) -> int:
    return len(ids) // diffusion.block_size * diffusion.block_size if diffusion.aligned else len(ids)


class DiffusionDecoder:
    """Generates one response, block by block.

    Args:
        cache: holds the first `prefill_length` tokens of `ids`.
        ids: the prompt.
        context: the model's context length.
        gated: whether block rows go through an adapter.
        deadline: when a speakable clause should be complete, on `clock`.
        constraint: what the response is held to, if anything. Of a block, the longest prefix that it accepts is
            committed; a token that it does not allow is replaced, and those after it are masked again.
    """

    def __init__(
        self,
        cache: KeyValueCache,
        ids: Sequence[int],
        diffusion: DiffusionConfig,
        schedule: DenoisingSchedule,
        sampler: Sampler,
        output: GenerationOutput,
        context: int,
        *,
        gated: bool = False,
        deadline: float | None = None,
        clock: Callable[[], float] = time.monotonic,
        constraint: Constraint | None = None,
    ) -> None:
        self._constraint = constraint
        self._unreported = () if constraint is None else constraint.start()
        ids = [*ids, *self._unreported]
        spans = math.ceil(diffusion.block_size / STEPS_TOKENS)
        schedule = replace(schedule, max_steps=schedule.max_steps * spans)
        self._cache, self._diffusion, self._schedule = cache, diffusion, schedule
        self._sampler, self._output = sampler, output
        self._context, self._gated = context, gated
        self._step_budget = StepBudget(schedule, output, deadline, clock)
        self._keys_exact = diffusion.text_attention != "bidirectional"
        start = self._prompt_length = _first_block_start(diffusion, ids)
        self._text = list(ids[:start])
        """Finished text, whether its keys are in the cache or not."""
        self._blocks = [new_block(min(diffusion.block_size, context - start), tuple(ids[start:]))]
        self._num_committed = [len(ids) - start]
        """For each block, how many of its tokens are committed or belong to the prompt."""
        self._first_step_pending = True
        """Whether the first block has had no step as the first one. Then it is not known how many steps it needs, and
        the text before it has only just become final. It may have had steps while it followed another block."""
        self._prefix_logits: Tensor | None = None
        """Logits of the clean row before the first block."""
        self._uncached: list[int] = []
        """Finished text that is not in the cache, and is run with the blocks."""

    def next_input(self) -> ForwardInput:
        """The input of the next step."""
        if not self._keys_exact and self._first_step_pending:
            self._cache.truncate(0)
        uncached = self._uncached = self._text[len(self._cache.tokens) :]
        self._step_budget.begin_step()
        diffusion = self._diffusion
        tokens = [*uncached, *(token for block in self._blocks for token in block.tokens)]
        past, num_clean = len(self._cache.tokens), len(uncached)
        if not self._keys_exact:
            tokens += [MASK] * min(diffusion.canvas - self._canvas_used(), self._context - past - len(tokens))
        mask = torch.ones(len(tokens), len(tokens), dtype=torch.bool)
        if self._keys_exact:
            size, first = diffusion.block_size, len(self._text) % diffusion.block_size
            text = text_mask(diffusion.text_attention, num_clean, past, size, first)[:, past:]
            mask = denoising_mask(text, [len(block.tokens) for block in self._blocks], diffusion.block_attention)
        noise = [self._gated and n >= num_clean for n in range(len(tokens))]
        num_outputs = len(tokens) - num_clean + (num_clean > 0)
        return ForwardInput(self._cache, tokens, range(past, past + len(tokens)), mask, noise, num_outputs)

    def _canvas_used(self) -> int:
        """Number of canvas tokens that finished blocks and those in flight take up."""
        generated = (len(self._text) - self._prompt_length) % self._diffusion.canvas
        return min(self._diffusion.canvas, generated + sum(len(block.tokens) for block in self._blocks))

    def step(self, logits: Tensor) -> StepOutput:
        """Keep the keys of finished text, denoise the blocks, and commit what is final."""
        self._step_budget.end_step()
        uncached = self._uncached
        if uncached:
            kept = uncached if self._keys_exact or not self._diffusion.predicts_next_token else uncached[:-1]
            if kept:
                self._cache.keep(range(len(kept)), kept)
            self._prefix_logits, logits = logits[0], logits[1:]
        self._set_first_token()
        block_logits = logits[: sum(len(block.tokens) for block in self._blocks)]
        if self._diffusion.predicts_next_token:
            # A block at the start of the text has no row before it. Then its first token is given.
            first = block_logits[0] if self._prefix_logits is None else self._prefix_logits
            block_logits = torch.cat((first[None], block_logits[:-1]))
        if not self._first_step_pending:
            self._step_budget.apply_deadline(self._blocks[0].steps + 1)
        start = 0
        for number, block in enumerate(self._blocks):
            is_first = number == 0
            remaining = self._step_budget.remaining(block) if is_first else self._schedule.max_steps
            own_logits = block_logits[start : start + len(block.tokens)]
            self._blocks[number] = denoise_step(
                block, own_logits, self._schedule, self._sampler, remaining, forced=is_first
            )
            start += len(block.tokens)
        if self._constraint is not None:
            self._blocks[0] = self._constrained(self._constraint, self._blocks[0], block_logits)
        if self._first_step_pending:
            self._step_budget.set_from_first_step(self._blocks[0])
            self._first_step_pending = False
        committed = [*self._unreported, *self._commit()]
        self._unreported = ()
        return StepOutput(committed)

    def close(self) -> None:
        """Nothing to do: the cache always holds finished text only."""

    def _set_first_token(self) -> None:
        """Set the first token of the first block from the clean row before it, in families that predict it there. If
        the block was denoised with another first token, all of it is masked again."""
        block = self._blocks[0]
        if not (self._diffusion.first_token_from_prefix and self._first_step_pending and block.num_final == 0):
            return
        if self._prefix_logits is not None:
            if self._constraint is not None:
                with torch.inference_mode():  # the logits were computed in it
                    self._constraint.restrict(self._prefix_logits[None], paths(()))
            token = self._sampler.sample(self._prefix_logits)
            rest = block.tokens[1:] if block.tokens[0] in (MASK, token) else (MASK,) * (len(block.tokens) - 1)
            self._blocks[0] = replace(block, tokens=(token, *rest), num_final=1)

    def _constrained(self, constraint: Constraint, block: Block, logits: Tensor) -> Block:
        """The first block with the longest prefix that the constraint accepts final."""
        tokens, position = list(block.tokens), self._num_committed[0]
        while position < len(tokens):
            proposed = None if tokens[position] == MASK else tokens[position]
            token = constraint.advance(proposed, logits[position], self._sampler)
            if token is None:
                break
            if proposed is not None and token != proposed:  # the rest followed another token
                tokens[position + 1 :] = [MASK] * (len(tokens) - position - 1)
                del self._blocks[1:], self._num_committed[1:]
            tokens[position] = token
            position += 1
            if self._output.is_stop_token(token):
                break
        return replace(block, tokens=tuple(tokens), num_final=max(block.num_final, position))

    def _commit(self) -> list[int]:
        """The tokens that have become final. Begins the next block if the first one is done."""
        committed: list[int] = []
        while self._blocks:
            begin, block = self._num_committed[0], self._truncated(self._blocks[0])
            done = block.is_done(self._schedule)
            num_final = block.num_final if self._schedule.may_change else block.unmasked_prefix
            if self._constraint is not None:
                num_final, done = block.num_final, done and block.num_final == len(block.tokens)
            end = len(block.tokens) if done else num_final
            committed += block.tokens[begin:end]
            self._num_committed[0] = max(begin, end)
            self._blocks[0] = replace(block, num_final=max(block.num_final, end))
            if not done:
                break
            self._text += block.tokens
            self._first_step_pending = True
            self._step_budget.next_block()
            del self._blocks[0], self._num_committed[0]
            if self._diffusion.first_token_from_prefix:
                break  # the end of this text determines the first token of the next block
        last = self._blocks[-1] if self._blocks else None
        may_add = len(self._blocks) < self._schedule.in_flight
        if last is None or (may_add and last.num_masked <= len(last.tokens) * (1 - _NEXT_BLOCK_SHARE)):
            self._add_block(force=last is None)
        return committed

    def _truncated(self, block: Block) -> Block:
        """The first block, truncated at a stop token, or at punctuation if the next one may begin there."""
        # Under a constraint, what follows the final tokens has not been checked.
        start = self._num_committed[0] if self._constraint is None else max(0, block.num_final - 1)
        truncated = truncate_after(block, self._output.is_stop_token, start)
        is_free = self._constraint is None or not self._constraint.active
        if self._diffusion.text_attention != "block" and is_free:
            start = max(self._num_committed[0], _MIN_CLAUSE_TOKENS)
            truncated = truncate_after(truncated, self._output.ends_clause, start)
        if len(truncated.tokens) < len(block.tokens):
            del self._blocks[1:], self._num_committed[1:]  # they followed the tokens that were cut off
        return truncated

    def _add_block(self, *, force: bool) -> None:
        """Add the next block, if the model has positions left for it."""
        position = len(self._text) + sum(len(block.tokens) for block in self._blocks)
        size = min(self._diffusion.block_size, self._context - position)
        if size > 0 or force:
            self._blocks.append(new_block(max(1, size)))
            self._num_committed.append(0)

    def draft(self, remaining: int) -> Draft:
        """The tokens that may still change, whatever remains: those after the final part of each block."""
        drafts = [block.draft() for block in self._blocks if block.steps]
        tokens = tuple(token for draft in drafts for token in draft.tokens)
        confidence = tuple(chance for draft in drafts for chance in draft.confidence)
        return Draft(tokens, confidence, "diffusion", tuple(mask for draft in drafts for mask in draft.masked))
