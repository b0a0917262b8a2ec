"""Holds a response to a grammar: masks the logits of every step, and takes forced tokens without a forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from model.decode.draft import NO_DRAFT, Draft, Path
from model.decode.grammar_compiler import Allowed, GrammarMatcher, allows
from model.decode.option_tree import OptionTree
from model.decode.sampling import Sampler
from model.decode.token_set import TokenSet, limits, unpacked

_MAX_FORCED = 64
"""Forced tokens taken at a time: rows of a single forward pass, for which others wait. The rest follows after it."""

_SHORT_VALUE = 4
"""Tokens of a value after which its end is no longer guessed. Most values of calls and forms are that short; in a
longer text the guess is hardly ever right, and its rows are not free."""


@dataclass(frozen=True)
class RowRule:
    """What a constraint does to the logits of a row, told before they are known.

    Attributes:
        allowed: what may be chosen; None if anything may.
        lowered: tokens whose logits are lowered first; None if none are.
        by: how much, in nats.
    """

    allowed: Allowed | None = None
    lowered: TokenSet | None = None
    by: float = 0.0


class Constraint:
    """What a response is held to, as decoding sees it: here a grammar. Without a matcher, anything is allowed."""

    def __init__(self, matcher: GrammarMatcher | None = None) -> None:
        self._matcher = matcher
        self._value_length = 0
        """Tokens committed since the last forced one."""

    @property
    def active(self) -> bool:
        """Whether the next tokens are restricted."""
        return self._matcher is not None

    @property
    def in_call(self) -> bool:
        """Whether a tool call is being written."""
        return False

    @property
    def observes(self) -> bool:
        """Whether it waits for `observe`. A grammar needs no features."""
        return False

    def observe(self, features: Tensor) -> None:
        """Receive what the model computed for the row that predicts the next token (`ForwardInput.on_features`), before
        `restrict` gets its logits.

        Args:
            features: [features] float32.
        """

    @property
    def options(self) -> OptionTree | None:
        """Beginnings of the response that are to be scored before anything is written. Asked for after `restrict`."""
        return None

    def choose(self, logits: Tensor) -> int | None:
        """Choose one of the options, or none of them.

        Args:
            logits: [1 + nodes, vocabulary], unmasked; row 0 predicts the first token.
        """
        return None

    def start(self) -> tuple[int, ...]:
        """The tokens that the response must begin with. Called once, before the first step."""
        return self._take_forced()

    def restrict(self, logits: Tensor, paths: Sequence[Path]) -> None:
        """Set the logits of tokens that are not allowed to -∞, in place.

        Args:
            logits: [rows, vocabulary]. Rows after a token that is not allowed are left alone: that token will be
                rejected.
            paths: what the step verifies, the draft first.
        """
        if self._matcher is None:
            return
        for path in paths:
            for n, allowed in enumerate(self._along(self._matcher, path.tokens)):
                if n >= path.shared:
                    self._mask(logits[path.rows[n]], allowed, path.tokens[:n])

    def rules(self, draft: Sequence[int]) -> list[RowRule]:
        """What `restrict` does to the row before the first of these drafts, to the one after it, and so on, as far as
        that does not depend on logits; empty if that of the first row does."""
        rules: list[RowRule] = []
        for row, allowed in enumerate([] if self._matcher is None else self._along(self._matcher, draft)):
            rule = self._rule(allowed, draft[:row])
            if rule is None:
                break
            rules.append(rule)
        return rules

    def _along(self, matcher: GrammarMatcher, tokens: Sequence[int]) -> list[Allowed]:
        """What the grammar allows in the row before the first of these tokens, in the one after it, and so on."""
        return matcher.along(tokens)

    def _mask(self, logits: Tensor, allowed: Allowed, drafted: Sequence[int]) -> None:
        """Restrict one row, which follows these drafts, in place."""
        mask_logits(logits, allowed)

    def _rule(self, allowed: Allowed, drafted: Sequence[int]) -> RowRule | None:
        """What `_mask` does; None if that depends on the logits."""
        return RowRule(allowed)

    def allowed_length(self, tokens: Sequence[int]) -> int:
        """How many of these drafts come before the first one that is not allowed."""
        return len(tokens) if self._matcher is None or not tokens else len(self._matcher.along(tokens)) - 1

    def accepted_length(self, tokens: Sequence[int]) -> int:
        """How many of these newly chosen tokens may be committed together. Under a grammar that is all: they were
        chosen from restricted logits."""
        return len(tokens)

    def commit(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Record committed tokens; returns the tokens that must follow them, which count as committed too."""
        if self._matcher is not None:
            for token in tokens:
                if self._matcher.finished:
                    break  # what follows the end is dropped
                self._value_length = 0 if self._matcher.forced else self._value_length + 1
                self._consume(self._matcher, token)
        forced = self._take_forced()
        if forced:
            self._value_length = 0
        return forced

    def guess(self, limit: int) -> tuple[int, ...]:
        """A guess at the next tokens; empty if there is none, or it is longer than `limit`. A grammar's is that a short
        value ends now, with what it forces after that: verified with the value's newest token, it saves the forward
        pass that would find the end."""
        if self._matcher is None or not 0 < self._value_length <= _SHORT_VALUE:
            return ()
        return self._matcher.ending(limit)

    def advance(self, token: int | None, logits: Tensor, sampler: Sampler) -> int | None:
        """Commit the next token of a block that is being denoised.

        Args:
            token: what denoising proposes; None while the token is masked.
            logits: [vocabulary], which predict it.

        Returns:
            `token` if it is allowed, another one if it is not, a forced one even where it is masked. None if the token
            is masked and there is a choice; then nothing is committed.
        """
        if self._matcher is not None:
            allowed = self._matcher.allowed()
            if isinstance(allowed, int):
                token = allowed
            elif token is not None and not allows(allowed, token):
                logits = logits.clone()
                mask_logits(logits, allowed)
                token = sampler.sample(logits)
            if token is not None:
                self._consume(self._matcher, token)
        return token

    def _take_forced(self) -> tuple[int, ...]:
        taken: list[int] = []
        while self._matcher is not None and self._matcher.forced and len(taken) < _MAX_FORCED:
            taken.append(self._matcher.forced[0])
            self._consume(self._matcher, taken[-1])
        return tuple(taken)

    def _consume(self, matcher: GrammarMatcher, token: int) -> None:
        """Follow the grammar by one token."""
        matcher.consume(token)


class OpeningConstraint(Constraint):
    """Holds the beginning of a response to a grammar. What follows is free: where the grammar would let the response
    end, it is left."""

    def _along(self, matcher: GrammarMatcher, tokens: Sequence[int]) -> list[Allowed]:
        """See `Constraint`: no further than to the first end of the grammar."""
        found = matcher.along(tokens)
        return found[: next((n for n, allowed in enumerate(found, 1) if matcher.may_end(allowed)), len(found))]

    def _mask(self, logits: Tensor, allowed: Allowed, drafted: Sequence[int]) -> None:
        if self._matcher is not None and not self._matcher.may_end(allowed):
            super()._mask(logits, allowed, drafted)

    def _rule(self, allowed: Allowed, drafted: Sequence[int]) -> RowRule | None:
        at_end = self._matcher is not None and self._matcher.may_end(allowed)
        return RowRule() if at_end else super()._rule(allowed, drafted)

    def allowed_length(self, tokens: Sequence[int]) -> int:
        """See `Constraint`: anything is allowed after the end of the grammar."""
        if self._matcher is None or not tokens:
            return len(tokens)
        allowed = self._along(self._matcher, tokens)
        return len(tokens) if self._matcher.may_end(allowed[-1]) else len(allowed) - 1

    def commit(self, tokens: Sequence[int]) -> tuple[int, ...]:
        """Follow the grammar to its end; returns what it forces next."""
        for token in tokens:
            if self._matcher is not None:
                self._consume(self._matcher, token)
        return self._take_forced()

    def _consume(self, matcher: GrammarMatcher, token: int) -> None:
        """Follow the grammar by one token, and forget it once its text is complete."""
        super()._consume(matcher, token)
        if matcher.may_end(matcher.allowed()):
            self._matcher = None


def mask_logits(logits: Tensor, allowed: Allowed) -> None:
    """Set the logits [vocabulary] of tokens that are not allowed to -∞, in place."""
    if isinstance(allowed, int):
        kept = logits[allowed].clone()
        logits.fill_(-torch.inf)
        logits[allowed] = kept
    elif logits.device.type == "cpu" and logits.dtype == torch.float32:
        values = logits.numpy()
        np.minimum(values, limits(allowed, len(values)), out=values)  # a sixth of the time that torch takes
    else:
        forbidden = torch.from_numpy(~unpacked(allowed, len(logits)))
        logits.masked_fill_(forbidden.to(logits.device), -torch.inf)


def draft_after(draft: Draft, forced: Sequence[int]) -> Draft:
    """What remains of a draft after forced tokens: nothing, unless it begins with them."""
    if not forced:
        return draft
    count = len(forced)
    if draft.tokens[:count] != tuple(forced):
        return NO_DRAFT
    return Draft(draft.tokens[count:], draft.confidence[count:], draft.origin)
