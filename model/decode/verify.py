"""Draft and verify: each pass checks the last pass's drafts and, for every number of them that might be accepted,
drafts what comes after. What is committed is what the base model alone would have said.

The rows of a pass, with drafts d₁…dₖ behind the last committed token t:

    clean   t d₁ … dₖ        causal, base weights: row r says what follows d₁…dᵣ
    branch  r = 0…k          noise rows that see t d₁…dᵣ and their own branch, and draft what follows the token after dᵣ
    look-up l₁ … lₙ          clean rows behind t, causal: a continuation copied from the conversation, checked alike

With m drafts accepted the pass commits 1 + m tokens, and branch m holds the next drafts. Sources: speculative sampling
(Leviathan et al., arXiv 2211.17192), all outcomes in one pass (TiDAR, arXiv 2511.08923), gated rows (I-DLM, Uno).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from model.cache import KeyValueCache
from model.sampling import Sampling, probabilities
from model.transformer import MASK, Rows


@dataclass(frozen=True)
class Draft:
    """Tokens that may come next, not verified.

    Attributes:
        spread: [tokens, vocabulary], what each was drawn from; None where they were simply the likeliest.
        confidence: probability of each in its own distribution.
    """

    tokens: tuple[int, ...] = ()
    spread: Tensor | None = None
    confidence: tuple[float, ...] = ()


@dataclass(frozen=True)
class Pass:
    """What a pass will check and draft.

    Attributes:
        last: the last committed token, not in the cache yet.
        draft: drafts of the pass before.
        lookup: a continuation copied from the conversation, or nothing.
        slots: noise rows of each branch; 0 without an adapter.
    """

    last: int
    draft: Draft = Draft()
    lookup: tuple[int, ...] = ()
    slots: int = 0

    @property
    def chains(self) -> int:
        """Clean rows: the last token, the drafts and the copied continuation."""
        return 1 + len(self.draft.tokens) + len(self.lookup)

    def rows(self, cache: KeyValueCache) -> Rows:
        """The rows of this pass, all of their logits wanted."""
        past, drafts, copied = len(cache.tokens), len(self.draft.tokens), len(self.lookup)
        tokens = [self.last, *self.draft.tokens, *self.lookup]
        positions = [past + n for n in range(1 + drafts)] + [past + 1 + n for n in range(copied)]
        branches = range(drafts + 1) if self.slots else ()
        for accepted in branches:
            tokens += [MASK] * self.slots
            positions += [past + accepted + slot for slot in range(1, self.slots + 1)]
        noise = [n >= self.chains for n in range(len(tokens))]
        return Rows(cache, tokens, positions, sees(drafts, copied, self.slots), noise, len(tokens))


def sees(drafts: int, copied: int, slots: int) -> Tensor:
    """Which new rows each new row of a pass sees: [rows, rows] bool."""
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


@dataclass
class Rule:
    """How tokens are chosen: greedily at temperature 0, else drawn with `generator`."""

    sampling: Sampling = field(default_factory=Sampling)
    generator: torch.Generator = field(default_factory=torch.Generator)

    def spread(self, logits: Tensor) -> Tensor:
        """The distribution that the base model alone would have drawn from: [vocabulary]."""
        if self.sampling.temperature == 0:
            return torch.nn.functional.one_hot(logits.argmax(), logits.shape[-1]).float()
        return probabilities(logits.cpu(), self.sampling)


def settle(ahead: Pass, logits: Tensor, rule: Rule) -> Outcome:
    """Decide, from the logits [rows, vocabulary] of a pass, what is final and what to try next."""
    drafts = len(ahead.draft.tokens)
    if rule.sampling.temperature == 0:
        best = logits[: ahead.chains].argmax(dim=-1).tolist()
        accepted = _agreed(ahead.draft.tokens, best)
        copied = _agreed(ahead.lookup, [best[0], *best[1 + drafts :]])
        if copied > accepted:
            rows = (0, *range(1 + drafts, 1 + drafts + copied))
            bonus = best[rows[-1]]
            return Outcome((*ahead.lookup[:copied], bonus), rows, Draft())
        newest = best[accepted]
    else:
        accepted, newest = _draw(ahead, logits, rule)
        if accepted < 0:  # a copied token was drawn first
            return _copied(ahead, logits, rule, newest)
    committed = (*ahead.draft.tokens[:accepted], newest)
    return Outcome(committed, tuple(range(1 + accepted)), _next_draft(ahead, logits, rule, accepted))


def _agreed(chain: Sequence[int], best: Sequence[int]) -> int:
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
        return place, int(torch.multinomial(rest, 1, generator=rule.generator))
    token = int(torch.multinomial(rule.spread(logits[len(drafts)]), 1, generator=rule.generator))
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
        token = int(torch.multinomial(rule.spread(logits[rows[-1]]), 1, generator=rule.generator))
        committed.append(token)
        if place + 1 == len(ahead.lookup) or token != ahead.lookup[place + 1]:
            break
    return Outcome(tuple(committed), tuple(rows), Draft())


def _next_draft(ahead: Pass, logits: Tensor, rule: Rule, accepted: int) -> Draft:
    """The drafts of the branch that saw exactly what was accepted."""
    if not ahead.slots:
        return Draft()
    start = ahead.chains + accepted * ahead.slots
    branch = logits[start : start + ahead.slots]
    if rule.sampling.temperature == 0:
        best = branch.softmax(-1).max(-1)
        return Draft(tuple(best.indices.tolist()), None, tuple(best.values.tolist()))
    spread = torch.stack([rule.spread(row) for row in branch])
    tokens = torch.multinomial(spread, 1, generator=rule.generator)[:, 0]
    confidence = spread.gather(1, tokens[:, None])[:, 0]
    return Draft(tuple(tokens.tolist()), spread, tuple(confidence.tolist()))


class LookUp:
    """Continuations copied from the conversation: what followed the last place where its newest tokens stood before
    (prompt look-up decoding, Saxena 2023).

    Args:
        tokens: the conversation so far.
        size: how many newest tokens must agree.
    """

    def __init__(self, tokens: Sequence[int], size: int = 3) -> None:
        self._tokens: list[int] = []
        self._size = size
        self._after: dict[tuple[int, ...], int] = {}
        self._found: int | None = None
        self.extend(tokens)

    def extend(self, tokens: Sequence[int]) -> None:
        """The conversation went on."""
        for token in tokens:
            self._tokens.append(token)
            newest = tuple(self._tokens[-self._size :])
            self._found = self._after.get(newest)
            if len(newest) == self._size:
                self._after[newest] = len(self._tokens)

    def find(self, length: int) -> tuple[int, ...]:
        """At most `length` tokens that may follow; empty when the newest tokens stand nowhere else."""
        return () if self._found is None else tuple(self._tokens[self._found : self._found + length])
