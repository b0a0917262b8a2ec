"""Lays out the passes of draft and verify: what is read, drafted and looked up before each, what is kept after it.

The rules of a single pass are in `verify.py`; whole passes on a device in `stride.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from model.answer import Answer
from model.cache import KeyValueCache
from model.decode.draft import NOTHING, Draft
from model.decode.lookup import LookUp
from model.decode.verify import Pass, agreed, settle
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


def verified(
    cache: KeyValueCache,
    ids: Sequence[int],
    drafting: Callable[[], Drafting],
    rule: Rule,
    answer: Answer,
    context: int,
    pace: Learner,
    stride: Callable[[], Stride | None] = lambda: None,
) -> Generator[Any, Any, None]:
    """Write an answer in the base model's own words. Yields the rows of each pass and is sent their logits, or a
    stride and is sent its outcome.

    Args:
        cache: holds a beginning of `ids`; the rest is read by the first pass.
        ids: the prompt.
        drafting: asked before each pass.
        context: positions that the model has.
        pace: told after each pass how many drafts and copied tokens were checked, and how many accepted.
        stride: asked before each pass for whole passes on the device, where there are such.
    """
    lookup, last, draft = LookUp(ids), ids[-1], NOTHING
    aboard: Stride | None = None
    unread = ids[len(cache.tokens) :]
    if len(unread) > 1:
        outcome = settle(Pass(last), (yield replace(text_rows(cache, unread, 1), exact=False, reads=True)), rule)
        cache.commit(unread)
        last = outcome.committed[-1]
        lookup.extend(outcome.committed)
        answer.add(outcome.committed, NOTHING)
    try:
        while answer.finished is None:
            wanted = stride() if rule.sampling.temperature == 0 else None
            if aboard is not None and (wanted is not aboard or not aboard.fits(cache)):
                aboard.land()
                aboard = None
            if wanted is not None and wanted.fits(cache):
                if aboard is None:
                    aboard = wanted
                    aboard.begin(cache, last, draft)
                outcome = yield aboard
                cache.commit([last, *outcome.committed[:-1]])
                tried, right = len(draft.tokens), agreed(draft.tokens, outcome.committed)
            else:
                how = drafting()
                if rule.sampling.temperature and draft.tokens:
                    how = replace(how, copied=0)  # draws along drafts do not look at it
                ahead = _plan(last, draft, lookup, how, context - len(cache.tokens) - 1)
                outcome = settle(ahead, (yield ahead.rows(cache)), rule)
                if outcome.committed:
                    cache.keep(outcome.kept, [last, *outcome.committed[:-1]])
                tried, right = len(ahead.draft.tokens), agreed(ahead.draft.tokens, outcome.committed)
                pace.learn_copied(len(ahead.lookup), agreed(ahead.lookup, outcome.committed))
            draft = outcome.draft
            if outcome.committed:
                last = outcome.committed[-1]
                lookup.extend(outcome.committed)
                pace.learn(tried, right)
            answer.add(outcome.committed, draft)
    finally:
        if aboard is not None:
            aboard.land()


def _plan(last: int, draft: Draft, lookup: LookUp, drafting: Drafting, left: int) -> Pass:
    """The next pass, with as many drafts as fit in front of the model's last position."""
    if draft.tokens[left:]:
        draft = NOTHING
    slots = max(0, min(drafting.slots, left - len(draft.tokens)))
    return Pass(last, draft, lookup.find(min(drafting.copied, left)), slots, drafting.linear)
