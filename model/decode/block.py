"""Block diffusion: a block of masks is filled in a few steps, the most confident tokens first. Wrong tokens may be
masked again or edited before the block is done.

Pure functions of a block and its logits; `diffusion.py` builds the forward passes. For the rules see
`effort.DenoisingSchedule`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from model.decode.draft import Draft
from model.decode.effort import DenoisingSchedule
from model.decode.sampling import Sampler, entropy_of, token_probabilities
from model.nn.forward_batch import MASK

_MAX_EDIT_STEPS = 16
"""Most steps that only edit, after nothing is masked any more (sglang's JointThreshold, `max_post_edit_steps`)."""


@dataclass(frozen=True)
class Block:
    """A block that is being denoised.

    Attributes:
        tokens: ids, MASK where a token is still masked.
        num_final: how many of the first tokens are final: they belong to the prompt, or were spoken already.
        steps: number of steps it has had.
        edit_steps: how many of them began with nothing masked.
        unchanged: whether the last step changed nothing.
        predictions: the predicted token of each position in the last step. The confidence is that of the token that
            `draft` shows: the unmasked token, or else the predicted one.
    """

    tokens: tuple[int, ...]
    num_final: int = 0
    steps: int = 0
    edit_steps: int = 0
    unchanged: bool = True
    predictions: Draft = field(default_factory=Draft)

    @property
    def num_masked(self) -> int:
        """Number of tokens that are still masked."""
        return sum(token == MASK for token in self.tokens)

    @property
    def unmasked_prefix(self) -> int:
        """Number of tokens before the first masked one."""
        return next((n for n, token in enumerate(self.tokens) if token == MASK), len(self.tokens))

    def is_done(self, schedule: DenoisingSchedule) -> bool:
        """Whether it needs no more steps."""
        return not self.num_masked and (schedule.edit is None or self.unchanged or self.edit_steps >= _MAX_EDIT_STEPS)

    def draft(self) -> Draft:
        """The tokens after the final ones, with predictions in place of masks."""
        pairs = zip(self.tokens, self.predictions.tokens or self.tokens, strict=True)
        tokens = tuple(predicted if token == MASK else token for token, predicted in pairs)
        masked = tuple(token == MASK for token in self.tokens[self.num_final :])
        return Draft(tokens[self.num_final :], self.predictions.confidence[self.num_final :], masked=masked)


def new_block(size: int, final: tuple[int, ...] = ()) -> Block:
    """A block of masks that begins with the final tokens `final`."""
    return Block((*final, *[MASK] * (size - len(final))), len(final))


def denoise_step(
    block: Block,
    logits: Tensor,
    schedule: DenoisingSchedule,
    sampler: Sampler,
    remaining: int,
    *,
    forced: bool = True,
) -> Block:
    """The block after one denoising step.

    Args:
        logits: [tokens, vocabulary], row n predicts token n.
        remaining: steps that this block still gets, including this one; the masked tokens are spread over them.
        forced: whether at least one token must be unmasked even if none is confident enough. False for a block whose
            predecessor is still being denoised.
    """
    predictions, confidence, entropy = _predict(logits, sampler, with_entropy=schedule.rule == "entropy")
    masked = torch.tensor([token == MASK for token in block.tokens])
    unmask = torch.zeros_like(masked)
    unmask[_select(masked, confidence, entropy, schedule, forced)] = True
    min_unmasked = math.ceil(int(masked.sum()) / max(1, remaining)) if forced else 0
    if int(unmask.sum()) < min_unmasked:
        order = torch.where(masked, confidence, -1.0).argsort(descending=True, stable=True)
        unmask[order[:min_unmasked]] = True
    tokens = torch.tensor(block.tokens)
    changeable = ~masked & (torch.arange(len(tokens)) >= block.num_final)
    edit = torch.zeros_like(masked)
    if schedule.edit is not None:
        edit = changeable & (predictions != tokens) & (confidence > schedule.edit)
    remask = torch.zeros_like(masked)
    if schedule.remask is not None and remaining > 1:
        remask = _select_remasked(tokens, changeable & ~edit, logits, schedule.remask, int(unmask.sum()) - 1)
    new_tokens = torch.where(unmask | edit, predictions, torch.where(remask, MASK, tokens))
    differs = (new_tokens != MASK) & (new_tokens != predictions)
    if bool(differs.any()):
        own_probability = token_probabilities(logits, new_tokens.clamp(min=0).to(logits.device)).cpu()
        confidence = torch.where(differs, own_probability, confidence)
    return replace(
        block,
        tokens=tuple(new_tokens.tolist()),
        steps=block.steps + 1,
        edit_steps=block.edit_steps + (not bool(masked.any())),
        unchanged=not bool((unmask | edit | remask).any()),
        predictions=Draft(tuple(predictions.tolist()), tuple(confidence.tolist())),
    )


def truncate_after(block: Block, ends: Callable[[int], bool], start: int) -> Block:
    """The block up to and including its first unmasked token from position `start` on for which `ends` is true.

    With clause ends this is AdaBlock (arXiv 2509.26432): a clause can be spoken without waiting for later tokens.
    """
    for n in range(start, block.unmasked_prefix):
        if ends(block.tokens[n]):
            size = n + 1
            predictions = Draft(block.predictions.tokens[:size], block.predictions.confidence[:size])
            return replace(block, tokens=block.tokens[:size], predictions=predictions)
    return block


def _predict(logits: Tensor, sampler: Sampler, *, with_entropy: bool) -> tuple[Tensor, Tensor, Tensor]:
    """For each position a token, its probability, and the entropy of the distribution (zeros without
    `with_entropy`)."""
    entropy = entropy_of(logits) if with_entropy else torch.zeros(len(logits))
    tokens, confidence = sampler.sample_rows(logits)
    return tokens.cpu(), confidence.cpu(), entropy.cpu()


def _select(masked: Tensor, confidence: Tensor, entropy: Tensor, schedule: DenoisingSchedule, forced: bool) -> Tensor:
    """Indices of the masked tokens that the rule unmasks."""
    positions = masked.nonzero()[:, 0]
    if schedule.rule == "threshold":
        return positions[confidence[positions] >= schedule.bound]
    if schedule.rule == "factor":
        order = positions[confidence[positions].argsort(descending=True, stable=True)]
        n = torch.arange(1, len(order) + 1)
        fits = (n + 1) * (1 - confidence[order]) < schedule.bound
    else:
        order = positions[entropy[positions].argsort(stable=True)]
        sums = entropy[order].cumsum(0)
        # The order makes the last entropy the largest. Leaving it out makes the first token always fit, which is only
        # wanted if one must be unmasked.
        fits = (sums - entropy[order] if forced else sums) <= schedule.bound
    return order[: int(fits.nonzero()[-1]) + 1] if bool(fits.any()) else order[:0]


def _select_remasked(tokens: Tensor, changeable: Tensor, logits: Tensor, floor: float, max_count: int) -> Tensor:
    """Unmasked tokens whose probability fell below `floor`, the least likely first, as a bool mask. `max_count` is less
    than the number of tokens unmasked in the same step, so that every step makes progress (dInfer's hierarchical
    re-masking; its origin is ReMDM, arXiv 2503.00307)."""
    probability = token_probabilities(logits, tokens.clamp(min=0).to(logits.device)).cpu()
    doubtful = changeable & (probability < floor)
    order = torch.where(doubtful, probability, 2.0).argsort(stable=True)[: max(0, max_count)]
    remask = torch.zeros_like(changeable)
    remask[order] = doubtful[order]
    return remask
