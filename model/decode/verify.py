"""Draft and verify: each pass checks the last pass's drafts and, for every number of them that might be accepted,
drafts what comes after. What is committed is what the base model alone would have said.

The rows of a pass, with drafts d₁…dₖ behind the last committed token t:

    clean   t d₁ … dₖ        causal, base weights: row r says what follows d₁…dᵣ
    branch  r = 0…k          noise rows that see t d₁…dᵣ and their own branch, and draft what follows the token after dᵣ
    look-up l₁ … lₙ          clean rows behind t, causal: a continuation copied from the conversation, checked alike

With m drafts accepted the pass commits 1 + m tokens, and branch m holds the next drafts. Pure functions of a pass and
its logits; `verified.py` lays out the passes. Sources: speculative sampling
(Leviathan et al., arXiv 2211.17192), all outcomes in one pass (TiDAR, arXiv 2511.08923), gated rows (I-DLM, Uno).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.cache import KeyValueCache
from model.decode.draft import NOTHING, Draft
from model.sampling import Rule, chances, likeliest
from model.transformer import MASK, Rows


@dataclass(frozen=True)
class Pass:
    """What a pass will check and draft.

    Attributes:
        last: the last committed token, not in the cache yet.
        draft: drafts of the pass before.
        lookup: a continuation copied from the conversation, or nothing.
        slots: noise rows of each branch; 0 where nothing drafts.
        linear: whether drafts are made by a pass of their own, all rows of a block seeing each other and each
            guessing its own token (Nemotron-Labs-Diffusion, linear self-speculation).
    """

    last: int
    draft: Draft = NOTHING
    lookup: tuple[int, ...] = ()
    slots: int = 0
    linear: bool = False

    @property
    def drafts_only(self) -> bool:
        """Whether this is the drafting pass of linear self-speculation, which settles nothing."""
        return self.linear and not self.draft.tokens and not self.lookup and self.slots > 0

    @property
    def branches(self) -> int:
        """How many numbers of accepted drafts are prepared for."""
        return 1 + len(self.draft.tokens) if self.slots and not self.linear else 0

    @property
    def chains(self) -> int:
        """Clean rows: the last token, the drafts and the copied continuation."""
        return 1 + len(self.draft.tokens) + len(self.lookup)

    def rows(self, cache: KeyValueCache) -> Rows:
        """The rows of this pass, all of their logits wanted."""
        past, drafts, copied = len(cache.tokens), len(self.draft.tokens), len(self.lookup)
        if self.drafts_only:
            count = 1 + self.slots
            everything = torch.ones(count, count, dtype=torch.bool)
            block = [self.last, *[MASK] * self.slots]  # all of it through the adapter; none of its keys are kept
            return Rows(cache, block, range(past, past + count), everything, [True] * count, count)
        tokens = [self.last, *self.draft.tokens, *self.lookup]
        positions = [past + n for n in range(1 + drafts)] + [past + 1 + n for n in range(copied)]
        for accepted in range(self.branches):
            tokens += [MASK] * self.slots
            positions += [past + accepted + slot for slot in range(1, self.slots + 1)]
        noise = [n >= self.chains for n in range(len(tokens))]
        seen = sees(drafts, copied, self.slots if self.branches else 0)
        return Rows(cache, tokens, positions, seen, noise, len(tokens), exact=True)


@functools.cache
def sees(drafts: int, copied: int, slots: int) -> Tensor:
    """Which new rows each new row of a pass sees: [rows, rows] bool. Not to be changed: it is made once."""
    clean = 1 + drafts + copied
    count = clean + (drafts + 1) * slots
    seen = torch.zeros(count, count, dtype=torch.bool)
    seen[: 1 + drafts, : 1 + drafts] = torch.ones(1 + drafts, 1 + drafts).tril().bool()
    seen[1 + drafts : clean, 0] = True
    seen[1 + drafts : clean, 1 + drafts : clean] = torch.ones(copied, copied).tril().bool()
    for accepted in range(drafts + 1 if slots else 0):
        start = clean + accepted * slots
        seen[start : start + slots, : 1 + accepted] = True
        seen[start : start + slots, start : start + slots] = torch.ones(slots, slots).tril().bool()
    return seen


@dataclass(frozen=True)
class Outcome:
    """What a pass came to.

    Attributes:
        committed: tokens that are final, at least one.
        kept: which rows hold the keys and values of `last` and of all committed tokens but the newest.
        draft: what may follow.
    """

    committed: tuple[int, ...]
    kept: tuple[int, ...]
    draft: Draft


def settle(ahead: Pass, logits: Tensor, rule: Rule) -> Outcome:
    """Decide, from the logits [rows, vocabulary] of a pass, what is final and what to try next."""
    if ahead.drafts_only:
        return Outcome((), (), _chosen(logits[1:], rule))
    drafts = len(ahead.draft.tokens)
    if rule.sampling.temperature == 0:
        best = likeliest(logits[: ahead.chains]).tolist()
        accepted = agreed(ahead.draft.tokens, best)
        copied = agreed(ahead.lookup, [best[0], *best[1 + drafts :]])
        if copied > accepted:
            rows = (0, *range(1 + drafts, 1 + drafts + copied))
            bonus = best[rows[-1]]
            return Outcome((*ahead.lookup[:copied], bonus), rows, NOTHING)
        newest = best[accepted]
    else:
        accepted, newest = _draw(ahead, logits, rule)
        if accepted < 0:  # a copied token was drawn first
            return _copied(ahead, logits, rule, newest)
    committed = (*ahead.draft.tokens[:accepted], newest)
    return Outcome(committed, tuple(range(1 + accepted)), _next_draft(ahead, logits, rule, accepted))


def agreed(chain: Sequence[int], best: Sequence[int]) -> int:
    """How many tokens of a chain are what the rows before them would have said."""
    count = 0
    for token, wanted in zip(chain, best, strict=False):
        if token != wanted:
            break
        count += 1
    return count


def _draw(ahead: Pass, logits: Tensor, rule: Rule) -> tuple[int, int]:
    """Speculative sampling of the drafts: how many are accepted, and the token that follows. With a copied
    continuation and no drafts the first token is drawn plainly; -1 says that it is the copied one."""
    drafts = ahead.draft.tokens
    for place, token in enumerate(drafts):
        base = rule.spread(logits[place])
        assert ahead.draft.spread is not None
        drawn_from = ahead.draft.spread[place]
        chance = torch.rand((), generator=rule.generator)
        if chance * drawn_from[token] < base[token]:
            continue
        rest = (base - drawn_from).clamp_(min=0)
        rest = rest if rest.sum() > 0 else base  # equal but for rounding
        return place, int(torch.multinomial(rest, 1, generator=rule.generator))
    token = rule.draw(logits[len(drafts)])
    if not drafts and ahead.lookup and token == ahead.lookup[0]:
        return -1, token
    return len(drafts), token


def _copied(ahead: Pass, logits: Tensor, rule: Rule, first: int) -> Outcome:
    """Go on along the copied continuation for as long as what is drawn agrees with it. Each token is drawn from the
    base model's distribution, so this changes nothing but the number of passes."""
    drafts = len(ahead.draft.tokens)
    committed, rows = [first], [0]
    for place in range(len(ahead.lookup)):
        rows.append(1 + drafts + place)
        token = rule.draw(logits[rows[-1]])
        committed.append(token)
        if place + 1 == len(ahead.lookup) or token != ahead.lookup[place + 1]:
            break
    return Outcome(tuple(committed), tuple(rows), NOTHING)


def _next_draft(ahead: Pass, logits: Tensor, rule: Rule, accepted: int) -> Draft:
    """The drafts of the branch that saw exactly what was accepted."""
    if not ahead.branches:
        return NOTHING
    start = ahead.chains + accepted * ahead.slots
    return _chosen(logits[start : start + ahead.slots], rule)


def _chosen(logits: Tensor, rule: Rule) -> Draft:
    """A draft from the logits [tokens, vocabulary] about it."""
    if rule.sampling.temperature == 0:
        tokens = likeliest(logits)
        return Draft(tuple(tokens.tolist()), None, tuple(chances(logits, tokens).tolist()))
    spread = torch.stack([rule.spread(row) for row in logits])
    tokens = torch.multinomial(spread, 1, generator=rule.generator)[:, 0]
    confidence = spread.gather(1, tokens[:, None])[:, 0]
    return Draft(tuple(tokens.tolist()), spread, tuple(confidence.tolist()))
