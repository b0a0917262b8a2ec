"""Numbers in answers from documents: one that no passage has was made up, and is not said."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import cached_property

from agent.words.language import language
from chat.progress import Progress
from chat.types import HANDED_OVER

_ENGLISH = language("en")

NOT_STATED = "that is not stated."
"""What follows the name of the source in place of a clause with such a number."""

_COUNTED = 12
"""Numbers up to this one may be counted or be hours: "three doctors", "ten past seven"."""

_CLAUSE = re.compile(r".*?[.!?…,;:]\s+|.+", re.DOTALL)
_COMPLETE = re.compile(r"[.!?…,;:]\s+$")


@dataclass(frozen=True)
class Support:
    """What an answer may take its numbers from.

    Attributes:
        openings: how answers from documents begin; others are not checked.
        texts: the passages, and the conversation.
    """

    openings: Sequence[str]
    texts: Sequence[str]

    def opening_of(self, answer: str) -> str | None:
        """The opening of an answer from documents, with the space after it; None if it is, or may be, another one."""
        return next((f"{opening} " for opening in self.openings if answer.startswith(f"{opening} ")), None)

    def covers(self, clause: str) -> bool:
        """Whether all numbers of a clause are in the texts. An hour may be told in the other of the two ways."""
        numbers = {number for number in _numbers(clause) if number > _COUNTED}
        return not numbers or numbers <= self._known

    @cached_property
    def _known(self) -> set[int]:
        known = {number for text in self.texts for number in _numbers(text)}
        return known | {number + 12 for number in known if 1 <= number <= _COUNTED}


async def only_supported(replying: AsyncIterator[Progress], support: Support) -> AsyncIterator[Progress]:
    """The same response clause by clause, up to the first one with a number that the passages do not have."""
    text = said = ""
    async with aclosing(replying):  # type: ignore[type-var]
        async for progress in replying:
            if progress.finished in HANDED_OVER:
                yield progress
                return
            text += progress.committed
            opening = support.opening_of(text)
            if opening is None and progress.finished is None and not said and _may_open(text, support.openings):
                continue
            clauses = _CLAUSE.findall(text[max(len(said), len(opening)) :]) if opening is not None else []
            if clauses and progress.finished is None and not _COMPLETE.search(clauses[-1]):
                clauses.pop()  # it may go on
            new = text[len(said) :] if opening is None else opening[len(said) :]
            finished = progress.finished
            for clause in clauses:
                if not support.covers(clause):
                    new += NOT_STATED if said + new == opening else ""
                    finished = "stop"
                    break
                new += clause
            said += new
            yield progress.with_text(new, finished=finished)
            if finished is not None:
                return


def _may_open(text: str, openings: Sequence[str]) -> bool:
    """Whether a text may become an opening."""
    return any(f"{opening} ".startswith(text) for opening in openings)


def _numbers(text: str) -> set[int]:
    """The quantities and ordinals in a text. A year or a time in four digits is two numbers as well."""
    found, numbers, i = _ENGLISH.tokens(text), set[int](), 0
    while i < len(found):
        if (hit := _ENGLISH.cardinal(found, i) or _ENGLISH.ordinal(found, i)) is None:
            i += 1
            continue
        numbers.add(hit[0])
        if len(found[i]) == 4 and found[i].isdigit():
            numbers |= {int(found[i][:2]), int(found[i][2:])}
        i = hit[1]
    return numbers
