"""Block denoising: a block of masks is filled in a few passes, the surest tokens first; what turns out wrong may be
masked again or edited before the block is done.

Pure functions of a block and the logits about it; `denoise.py` lays out the passes. Rules: see `schedule.Schedule`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from model.decode.draft import Draft
from model.decode.schedule import Schedule
from model.sampling import Rule, chances, entropies, likeliest, probabilities
from model.transformer import MASK

_MOST_EDITS = 16
"""Passes that only edit, once nothing is masked (sglang's JointThreshold, `max_post_edit_steps`)."""


@dataclass(frozen=True)
class Block:
    """A block that is being denoised.

    Attributes:
        tokens: ids, MASK where nothing is settled.
        given: how many of the first are final: of the prompt, or spoken already.
        passes: passes it has had.
        edits: how many of them found nothing masked.
        quiet: whether the last pass changed nothing at all.
        guesses: the likeliest token of each position in the last pass; and the probability of what may be shown there,
            the settled token or else that one.
    """

    tokens: tuple[int, ...]
    given: int = 0
    passes: int = 0
    edits: int = 0
    quiet: bool = True
    guesses: Draft = field(default_factory=Draft)

    @property
    def masked(self) -> int:
        """Tokens that are not settled."""
        return sum(token == MASK for token in self.tokens)

    @property
    def prefix(self) -> int:
        """How many of the first tokens are settled, without a gap."""
        return next((n for n, token in enumerate(self.tokens) if token == MASK), len(self.tokens))

    def done(self, schedule: Schedule) -> bool:
        """Whether it needs no more passes."""
        return not self.masked and (schedule.edit is None or self.quiet or self.edits >= _MOST_EDITS)

    def draft(self) -> Draft:
        """What may stand behind the final tokens."""
        settled = zip(self.tokens, self.guesses.tokens or self.tokens, strict=True)
        tokens = tuple(guess if token == MASK else token for token, guess in settled)
        return Draft(tokens[self.given :], None, self.guesses.confidence[self.given :])


def fresh(size: int, given: tuple[int, ...] = ()) -> Block:
    """A block of masks behind what is given of it."""
    return Block((*given, *[MASK] * (size - len(given))), len(given))


def step(block: Block, logits: Tensor, schedule: Schedule, rule: Rule, left: int, *, forced: bool = True) -> Block:
    """One pass.

    Args:
        logits: [tokens, vocabulary], row n about token n.
        left: passes this block still gets, this one included; all that is masked is spread over them.
        forced: whether at least one token must be settled, though none is sure. Not for a block whose predecessor is
            still being denoised.
    """
    guesses, confidence, entropy = _guess(logits, rule, wanted=schedule.rule == "entropy")
    masked = torch.tensor([token == MASK for token in block.tokens])
    settled = torch.zeros_like(masked)
    settled[_sure(masked, confidence, entropy, schedule, forced)] = True
    fewest = math.ceil(int(masked.sum()) / max(1, left)) if forced else 0
    if int(settled.sum()) < fewest:
        order = torch.where(masked, confidence, -1.0).argsort(descending=True, stable=True)
        settled[order[:fewest]] = True
    tokens = torch.tensor(block.tokens)
    free = ~masked & (torch.arange(len(tokens)) >= block.given)
    changed = torch.zeros_like(masked)
    if schedule.edit is not None:
        changed = free & (guesses != tokens) & (confidence > schedule.edit)
    again = torch.zeros_like(masked)
    if schedule.remask is not None and left > 1:
        again = _doubtful(tokens, free & ~changed, logits, schedule.remask, int(settled.sum()) - 1)
    after = torch.where(settled | changed, guesses, torch.where(again, MASK, tokens))
    held = (after != MASK) & (after != guesses)
    if bool(held.any()):
        belief = chances(logits, after.clamp(min=0).to(logits.device)).cpu()
        confidence = torch.where(held, belief, confidence)
    return replace(
        block,
        tokens=tuple(after.tolist()),
        passes=block.passes + 1,
        edits=block.edits + (not bool(masked.any())),
        quiet=not bool((settled | changed | again).any()),
        guesses=Draft(tuple(guesses.tolist()), None, tuple(confidence.tolist())),
    )


def cut(block: Block, closes: Callable[[int], bool], since: int) -> Block:
    """A block that ends at its first settled token, from place `since` on, that closes a clause (AdaBlock, arXiv
    2509.26432): what can be spoken need not wait for what comes behind it."""
    for n in range(since, block.prefix):
        if closes(block.tokens[n]):
            size = n + 1
            guesses = Draft(block.guesses.tokens[:size], None, block.guesses.confidence[:size])
            return replace(block, tokens=block.tokens[:size], guesses=guesses)
    return block


def _guess(logits: Tensor, rule: Rule, *, wanted: bool) -> tuple[Tensor, Tensor, Tensor]:
    """For each position a token, its probability, and (where it is wanted) the entropy of the distribution."""
    entropy = entropies(logits) if wanted else torch.zeros(len(logits))
    if rule.sampling.temperature == 0:
        best = likeliest(logits)
        return best.cpu(), chances(logits, best).cpu(), entropy.cpu()
    drawn_from = torch.stack([probabilities(row.cpu().float(), rule.sampling) for row in logits])
    tokens = torch.multinomial(drawn_from, 1, generator=rule.generator)[:, 0]
    return tokens, drawn_from.gather(1, tokens[:, None])[:, 0], entropy.cpu()


def _sure(masked: Tensor, confidence: Tensor, entropy: Tensor, schedule: Schedule, forced: bool) -> Tensor:
    """Indices of the masked tokens that the rule settles."""
    places = masked.nonzero()[:, 0]
    if schedule.rule == "threshold":
        return places[confidence[places] >= schedule.bound]
    if schedule.rule == "factor":
        order = places[confidence[places].argsort(descending=True, stable=True)]
        n = torch.arange(1, len(order) + 1)
        fits = (n + 1) * (1 - confidence[order]) < schedule.bound
    else:
        order = places[entropy[places].argsort(stable=True)]
        sums = entropy[order].cumsum(0)
        # In order, so that the last one is the largest, and the first one always fits: not where none has to.
        fits = (sums - entropy[order] if forced else sums) <= schedule.bound
    return order[: int(fits.nonzero()[-1]) + 1] if bool(fits.any()) else order[:0]


def _doubtful(tokens: Tensor, free: Tensor, logits: Tensor, floor: float, most: int) -> Tensor:
    """Settled tokens that the model no longer believes in, the least believed first. Fewer than were settled in the
    same pass, so that every pass gets on (dInfer's hierarchical re-masking; its origin is ReMDM, arXiv 2503.00307)."""
    belief = chances(logits, tokens.clamp(min=0).to(logits.device)).cpu()
    doubted = free & (belief < floor)
    order = torch.where(doubted, belief, 2.0).argsort(stable=True)[: max(0, most)]
    again = torch.zeros_like(free)
    again[order] = doubted[order]
    return again
