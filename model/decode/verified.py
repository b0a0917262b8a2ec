"""Lays out the passes of draft and verify: what is read, drafted and looked up before each, what is kept after it.

The rules of a single pass are in `verify.py`; whole passes on a device in `stride.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from model.cache import KeyValueCache
from model.decode.decoding import Step
from model.decode.draft import NOTHING, Draft
from model.decode.lookup import LookUp
from model.decode.verify import Outcome, Pass, agreed, settle
from model.sampling import Rule
from model.transformer import text_rows


class Stride(Protocol):
    """Whole passes of one conversation, acceptance included, without the host (`stride.Strider`)."""

    def begin(self, cache: KeyValueCache, last: int, draft: Draft) -> None:
        """Take a conversation aboard."""
        ...

    def fits(self, cache: KeyValueCache) -> bool:
        """Whether it has room for this conversation's next passes."""
        ...

    def land(self) -> None:
        """Give the conversation's keys back to its cache."""
        ...


class Learner(Protocol):
    """Is told what became of drafts (`pace.Pace`)."""

    def learn(self, tried: int, accepted: int) -> None:
        """A pass checked so many drafts."""
        ...

    def learn_copied(self, tried: int, right: int) -> None:
        """A pass checked so many copied tokens."""
        ...


@dataclass(frozen=True)
class Drafting:
    """How an answer is drafted.

    Attributes:
        slots, linear: as in `Pass`.
        copied: tokens of a continuation copied from the conversation, at most; 0 for none.
    """

    slots: int = 0
    linear: bool = False
    copied: int = 0


class Verifier:
    """Writes one answer in the base model's own words.

    Args:
        cache: holds a beginning of `ids`; the rest is read by the first pass.
        ids: the prompt.
        drafting: asked before each pass.
        context: positions that the model has.
        pace: told after each pass how many drafts and copied tokens were checked, and how many accepted.
        stride: asked before each pass for whole passes on the device, where there are such.
    """

    def __init__(
        self,
        cache: KeyValueCache,
        ids: Sequence[int],
        drafting: Callable[[], Drafting],
        rule: Rule,
        context: int,
        pace: Learner,
        stride: Callable[[], Stride | None] = lambda: None,
    ) -> None:
        self._cache, self._drafting, self._rule, self._context = cache, drafting, rule, context
        self._pace, self._stride = pace, stride
        self._lookup, self._last, self._draft = LookUp(ids), ids[-1], NOTHING
        unread = ids[len(cache.tokens) :]
        self._unread = list(unread) if len(unread) > 1 else []
        self._aboard: Stride | None = None
        self._pass = Pass(self._last)

    def ahead(self) -> Any:
        """The next pass: the rest of the prompt, a stride on the device, or drafts with what is copied beside them."""
        if self._unread:
            return replace(text_rows(self._cache, self._unread, 1), exact=False, reads=True)
        if self._board() is not None:
            return self._aboard
        how = self._drafting()
        if self._rule.sampling.temperature and self._draft.tokens:
            how = replace(how, copied=0)  # draws along drafts do not look at it
        left = self._context - len(self._cache.tokens) - 1
        self._pass = _plan(self._last, self._draft, self._lookup, how, left)
        return self._pass.rows(self._cache)

    def step(self, result: Any) -> Step:
        """What it came to: its logits are settled; a stride has done so itself."""
        if self._unread:
            outcome = settle(self._pass, result, self._rule)
            self._cache.commit(self._unread)
            self._unread = []
        elif self._aboard is not None:
            outcome = result
            self._cache.commit([self._last, *outcome.committed[:-1]])
            self._pace.learn(len(self._draft.tokens), agreed(self._draft.tokens, outcome.committed))
        else:
            outcome = settle(self._pass, result, self._rule)
            self._kept(outcome)
        self._draft = outcome.draft
        if outcome.committed:
            self._last = outcome.committed[-1]
            self._lookup.extend(outcome.committed)
        return Step(outcome.committed, outcome.draft)

    def close(self) -> None:
        """Bring back the keys that a stride holds."""
        if self._aboard is not None:
            self._aboard.land()
            self._aboard = None

    def _board(self) -> Stride | None:
        """Whole passes on the device, where there are such now and they have room."""
        wanted = self._stride() if self._rule.sampling.temperature == 0 else None
        if self._aboard is not None and (wanted is not self._aboard or not self._aboard.fits(self._cache)):
            self.close()
        if self._aboard is None and wanted is not None and wanted.fits(self._cache):
            wanted.begin(self._cache, self._last, self._draft)
            self._aboard = wanted
        return self._aboard

    def _kept(self, outcome: Outcome) -> None:
        """Keep the keys of what is final, and what is to be learned from it."""
        tried, copied = self._pass.draft.tokens, self._pass.lookup
        if outcome.committed:
            self._cache.keep(outcome.kept, [self._last, *outcome.committed[:-1]])
            self._pace.learn(len(tried), agreed(tried, outcome.committed))
        self._pace.learn_copied(len(copied), agreed(copied, outcome.committed))


def _plan(last: int, draft: Draft, lookup: LookUp, drafting: Drafting, left: int) -> Pass:
    """The next pass, with as many drafts as fit in front of the model's last position."""
    if draft.tokens[left:]:
        draft = NOTHING
    slots = max(0, min(drafting.slots, left - len(draft.tokens)))
    return Pass(last, draft, lookup.find(min(drafting.copied, left)), slots, drafting.linear)
