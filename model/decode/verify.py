"""One step of speculative decoding. It verifies the previous step's drafts and, for every number of them that might be
accepted, drafts what comes next. What it commits is what the base model alone would have generated.

The rows of a step, with drafts d₁…dₖ after the last committed token t:

    clean   t d₁ … dₖ        causal, base weights: row r predicts what follows d₁…dᵣ
    branch  r = 0…k          noise rows that attend to t d₁…dᵣ and to their own branch, and draft what follows the token
                             after dᵣ
    copied  l₁ … lₙ          clean rows after t, causal: a continuation copied from the conversation, verified likewise

With m drafts accepted, the step commits 1 + m tokens, and branch m holds the next drafts. Pure functions of a step and
its logits; `speculative.py` builds the forward passes. Sources: speculative decoding (Leviathan et al., arXiv
2211.17192), all outcomes in one forward pass (TiDAR, arXiv 2511.08923), gated rows (I-DLM, Uno).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.decode.draft import NO_DRAFT, Draft
from model.decode.log_probabilities import TokenLogProbability
from model.decode.sampling import Sampler, greedy_tokens, token_probabilities
from model.nn.forward_batch import MASK, ForwardInput
from model.nn.kv_cache import KeyValueCache


@dataclass(frozen=True)
class VerificationStep:
    """What a step verifies and drafts.

    Attributes:
        last_token: the last committed token, not in the cache yet.
        draft: drafts of the previous step.
        copied: a continuation copied from the conversation; may be empty.
        num_drafts: noise rows of each branch; 0 for no drafting.
        linear: whether a separate forward pass makes the drafts. In it all rows of a block attend to each other and
            each predicts its own token (Nemotron-Labs-Diffusion, linear self-speculation).
    """

    last_token: int
    draft: Draft = NO_DRAFT
    copied: tuple[int, ...] = ()
    num_drafts: int = 0
    linear: bool = False

    @property
    def only_drafts(self) -> bool:
        """Whether this is the drafting step of linear self-speculation, which commits nothing."""
        return self.linear and not self.draft.tokens and not self.copied and self.num_drafts > 0

    @property
    def num_branches(self) -> int:
        """Number of branches: one for each possible number of accepted drafts, or none."""
        return 1 + len(self.draft.tokens) if self.num_drafts and not self.linear else 0

    @property
    def num_clean(self) -> int:
        """Number of clean rows: the last token, the drafts and the copied continuation."""
        return 1 + len(self.draft.tokens) + len(self.copied)

    def forward_input(self, cache: KeyValueCache) -> ForwardInput:
        """The input of this step; every row has outputs."""
        past, drafts, copied = len(cache.tokens), len(self.draft.tokens), len(self.copied)
        if self.only_drafts:
            count = 1 + self.num_drafts
            mask = torch.ones(count, count, dtype=torch.bool)
            block = [self.last_token, *[MASK] * self.num_drafts]
            # All rows go through the adapter, and none of their keys are kept.
            return ForwardInput(cache, block, range(past, past + count), mask, [True] * count, count)
        tokens = [self.last_token, *self.draft.tokens, *self.copied]
        positions = [past + n for n in range(1 + drafts)] + [past + 1 + n for n in range(copied)]
        for accepted in range(self.num_branches):
            tokens += [MASK] * self.num_drafts
            positions += [past + accepted + n for n in range(1, self.num_drafts + 1)]
        noise = [n >= self.num_clean for n in range(len(tokens))]
        mask = verification_mask(drafts, copied, self.num_drafts if self.num_branches else 0)
        return ForwardInput(cache, tokens, positions, mask, noise, len(tokens))


@functools.cache
def verification_mask(drafts: int, copied: int, branch_size: int) -> Tensor:
    """Attention mask of a step's new rows: [rows, rows] bool. The result is cached and must not be modified."""
    clean = 1 + drafts + copied
    count = clean + (drafts + 1) * branch_size
    mask = torch.zeros(count, count, dtype=torch.bool)
    mask[: 1 + drafts, : 1 + drafts] = torch.ones(1 + drafts, 1 + drafts).tril().bool()
    mask[1 + drafts : clean, 0] = True
    mask[1 + drafts : clean, 1 + drafts : clean] = torch.ones(copied, copied).tril().bool()
    for accepted in range(drafts + 1 if branch_size else 0):
        start = clean + accepted * branch_size
        mask[start : start + branch_size, : 1 + accepted] = True
        branch = torch.ones(branch_size, branch_size).tril().bool()
        mask[start : start + branch_size, start : start + branch_size] = branch
    return mask


@dataclass(frozen=True)
class VerificationResult:
    """The result of a step.

    Attributes:
        committed: tokens that are now final, at least one.
        kept_rows: the rows that hold the keys and values of the last token and of all committed tokens but the newest.
        draft: tokens that may follow.
        log_probabilities: of the committed tokens, if the device has computed them.
    """

    committed: tuple[int, ...]
    kept_rows: tuple[int, ...]
    draft: Draft
    log_probabilities: tuple[TokenLogProbability, ...] = ()


def accept(step: VerificationStep, logits: Tensor, sampler: Sampler, position: int = 0) -> VerificationResult:
    """Decide from the logits [rows, vocabulary] of a step what to commit and what to draft next.

    A draft is accepted if it is the token that would have been chosen without it. Where tokens are sampled, it would be
    the same token, because the random number is the position's (`Sampler.uniforms`).

    Args:
        position: of the last token in the text.
    """
    if step.only_drafts:
        return VerificationResult((), (), _choose_draft(logits[1:]))
    drafts = len(step.draft.tokens)
    if sampler.sampling.temperature == 0:
        predicted = greedy_tokens(logits[: step.num_clean]).tolist()
    else:
        predicted = _sampled(step, logits, sampler, position)
    accepted = accepted_length(step.draft.tokens, predicted)
    copied = accepted_length(step.copied, [predicted[0], *predicted[1 + drafts :]])
    if copied > accepted:
        rows = (0, *range(1 + drafts, 1 + drafts + copied))
        return VerificationResult((*step.copied[:copied], predicted[rows[-1]]), rows, NO_DRAFT)
    committed = (*step.draft.tokens[:accepted], predicted[accepted])
    return VerificationResult(committed, tuple(range(1 + accepted)), _next_draft(step, logits, accepted))


def accepted_length(candidates: Sequence[int], predicted: Sequence[int]) -> int:
    """How many of the first candidate tokens equal the predictions of the rows before them."""
    count = 0
    for token, prediction in zip(candidates, predicted, strict=False):
        if token != prediction:
            break
        count += 1
    return count


def _sampled(step: VerificationStep, logits: Tensor, sampler: Sampler, position: int) -> list[int]:
    """What each clean row chooses, as far as its drafts or copied tokens are accepted; -1 after that."""
    drafts = len(step.draft.tokens)
    chosen = [sampler.sample_at(logits[0], position + 1), *[-1] * (step.num_clean - 1)]
    for first, candidates in ((1, step.draft.tokens), (1 + drafts, step.copied)):
        newest = chosen[0]
        for n, candidate in enumerate(candidates):
            if newest != candidate:
                break
            newest = chosen[first + n] = sampler.sample_at(logits[first + n], position + 2 + n)
    return chosen


def _next_draft(step: VerificationStep, logits: Tensor, accepted: int) -> Draft:
    """The drafts of the branch that attended to exactly the accepted tokens."""
    if not step.num_branches:
        return NO_DRAFT
    start = step.num_clean + accepted * step.num_drafts
    return _choose_draft(logits[start : start + step.num_drafts])


def _choose_draft(logits: Tensor) -> Draft:
    """A draft from the logits [tokens, vocabulary] that predict it: the likeliest tokens."""
    tokens = greedy_tokens(logits)
    return Draft(tuple(tokens.tolist()), tuple(token_probabilities(logits, tokens).tolist()), "masked")
