"""One step of speculative decoding. It verifies the previous step's drafts and, for every number of them that might be
accepted, drafts what comes next. What it commits is what the base model alone would have generated.

The rows of a step, with drafts d₁…dₖ after the last committed token t:

    clean   t d₁ … dₖ        causal, base weights: row r predicts what follows d₁…dᵣ
    branch  r = 0…k          noise rows that attend to t d₁…dᵣ and to their own branch, and draft what follows the token
                             after dᵣ
    other   l₁ … lₙ          clean rows after t d₁…dₐ, causal: an alternative to dₐ₊₁…, verified likewise, such as a
                             continuation copied from the conversation (a = 0)

With m drafts accepted, the step commits 1 + m tokens, and branch m holds the next drafts. With more tokens of an
alternative and of the drafts before it, it commits these. Pure functions of a step and its logits; `speculative.py`
builds the forward passes. Sources: speculative decoding (Leviathan et al., arXiv 2211.17192), several continuations in
one forward pass (SpecInfer, arXiv 2305.09781), all outcomes in one (TiDAR, arXiv 2511.08923), gated rows (I-DLM, Uno).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.decode.draft import NO_DRAFT, Alternative, Draft, Path, paths
from model.decode.log_probabilities import TokenLogProbability
from model.decode.sampling import Sampler, greedy_tokens, token_probabilities
from model.nn.forward_batch import MASK, ForwardInput
from model.nn.kv_cache import KeyValueCache

_KEPT_MASKS = 1024
"""Masks that are kept, of a few hundred bytes each."""


@dataclass(frozen=True)
class VerificationStep:
    """What a step verifies and drafts.

    Attributes:
        last_token: the last committed token, not in the cache yet.
        draft: drafts of the previous step.
        alternatives: continuations that it verifies as well.
        num_drafts: noise rows of each branch; 0 for no drafting.
        linear: whether a separate forward pass makes the drafts. In it all rows of a block attend to each other and
            each predicts its own token (Nemotron-Labs-Diffusion, linear self-speculation).
    """

    last_token: int
    draft: Draft = NO_DRAFT
    alternatives: tuple[Alternative, ...] = ()
    num_drafts: int = 0
    linear: bool = False

    @property
    def only_drafts(self) -> bool:
        """Whether this is the drafting step of linear self-speculation, which commits nothing."""
        return self.linear and not self.draft.tokens and not self.alternatives and self.num_drafts > 0

    @property
    def num_branches(self) -> int:
        """Number of branches: one for each possible number of accepted drafts, or none."""
        return 1 + len(self.draft.tokens) if self.num_drafts and not self.linear else 0

    @property
    def num_clean(self) -> int:
        """Number of clean rows: the last token, the drafts and the alternatives."""
        return 1 + len(self.draft.tokens) + sum(len(one.tokens) for one in self.alternatives)

    @property
    def paths(self) -> list[Path]:
        """What it verifies, the draft first."""
        return paths(self.draft.tokens, self.alternatives)

    def forward_input(self, cache: KeyValueCache) -> ForwardInput:
        """The input of this step; every row has outputs."""
        past, drafts = len(cache.tokens), len(self.draft.tokens)
        if self.only_drafts:
            count = 1 + self.num_drafts
            mask = torch.ones(count, count, dtype=torch.bool)
            block = [self.last_token, *[MASK] * self.num_drafts]
            # All rows go through the adapter, and none of their keys are kept.
            return ForwardInput(cache, block, range(past, past + count), mask, [True] * count, count)
        tokens, positions = [self.last_token, *self.draft.tokens], [past + n for n in range(1 + drafts)]
        for one in self.alternatives:
            tokens += one.tokens
            positions += [past + 1 + one.after + n for n in range(len(one.tokens))]
        for accepted in range(self.num_branches):
            tokens += [MASK] * self.num_drafts
            positions += [past + accepted + n for n in range(1, self.num_drafts + 1)]
        noise = [n >= self.num_clean for n in range(len(tokens))]
        alternatives = tuple((one.after, len(one.tokens)) for one in self.alternatives)
        mask = verification_mask(drafts, alternatives, self.num_drafts if self.num_branches else 0)
        return ForwardInput(cache, tokens, positions, mask, noise, len(tokens))


@functools.lru_cache(_KEPT_MASKS)
def verification_mask(drafts: int, alternatives: tuple[tuple[int, int], ...], branch_size: int) -> Tensor:
    """Attention mask of a step's new rows: [rows, rows] bool. The result is cached and must not be modified.

    Args:
        alternatives: of each, how many drafts come before it, and its tokens.
        branch_size: noise rows of each branch.
    """
    branches = [(accepted, branch_size) for accepted in range(drafts + 1 if branch_size else 0)]
    start = 1 + drafts
    count = start + sum(size for _, size in (*alternatives, *branches))
    mask = torch.zeros(count, count, dtype=torch.bool)
    mask[:start, :start] = torch.ones(start, start).tril().bool()
    for before, size in (*alternatives, *branches):
        mask[start : start + size, : 1 + before] = True
        mask[start : start + size, start : start + size] = torch.ones(size, size).tril().bool()
        start += size
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
    if sampler.sampling.temperature == 0:
        predicted = greedy_tokens(logits[: step.num_clean]).tolist()
    else:
        predicted = _sampled(step, logits, sampler, position)
    verified = step.paths
    accepted = [accepted_length(path.tokens, [predicted[row] for row in path.rows]) for path in verified]
    longest = max(range(len(verified)), key=accepted.__getitem__)  # the draft where others are no longer
    path, count = verified[longest], accepted[longest]
    rows = path.rows[: 1 + count]
    draft = NO_DRAFT if longest else _next_draft(step, logits, count)
    return VerificationResult((*path.tokens[:count], predicted[rows[-1]]), rows, draft)


def accepted_length(candidates: Sequence[int], predicted: Sequence[int]) -> int:
    """How many of the first candidate tokens equal the predictions of the rows before them."""
    count = 0
    for token, prediction in zip(candidates, predicted, strict=False):
        if token != prediction:
            break
        count += 1
    return count


def _sampled(step: VerificationStep, logits: Tensor, sampler: Sampler, position: int) -> list[int]:
    """What each clean row chooses, as far as the tokens before it are accepted; -1 after that."""
    chosen = [-1] * step.num_clean
    for path in step.paths:
        for n, row in enumerate(path.rows):
            if n and chosen[path.rows[n - 1]] != path.tokens[n - 1]:
                break
            if n >= path.shared:
                chosen[row] = sampler.sample_at(logits[row], position + 1 + n)
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
