"""How much is said at a time: a listener cannot skim. A long response ends with a sentence, and offers to go on."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace

from chat.progress import Progress

MAX_WORDS = 40
"""Of a response, if the user has not asked for more: about 15 seconds of speech. The first sentence is never cut."""

_LONGEST_SENTENCE = 80
"""Words. Where no sentence has ended by then, none may end at all: small models spell a word again and again."""

OFFER = "Shall I go on?"

_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"')\]*]*\s+|\n+")
_LEAST_WORDS = 12
"""A response is not cut before: "Sure!" alone would be no answer."""

_NO_END = re.compile(
    r"(?:^|\s)(?:\d{1,2}|(?:[A-Za-z]\.)*[A-Za-z]|Mrs?|Ms|Dr|St|Mt|No|Prof|Jr|Sr|vs|etc|approx)\.[\"')]*\s+$"
)
"""The number of an item, an initial or an abbreviation."""

_LONGEST_NO_END = 40
"""Characters that are read for one, with what closes it and the space after it."""


async def brief(replying: AsyncIterator[Progress]) -> AsyncIterator[Progress]:
    """The same response up to the last sentence that is not too much. After the first dozen words, a sentence is said
    once it is complete, and shown as a draft until then."""
    said, held, ends = "", "", list[int]()
    async with aclosing(replying):  # type: ignore[type-var]
        async for progress in replying:
            held += progress.committed
            ends = [end for end in ends if end <= len(said)] + sentence_ends(said + held, len(said))
            may_all = progress.tool_calls or (progress.finished and _num_words(said + held) <= MAX_WORDS)
            cut = len(held) if may_all else _last_fitting(said + held, ends) - len(said)
            released, held = held[:cut], held[cut:]
            said += released
            if not ends and _num_words(said) > _LONGEST_SENTENCE:
                yield progress.with_text(released, finished="stop")
                return
            if held.strip() and (progress.finished or ends[-1] > len(said)):
                space = "" if said[-1].isspace() else " "
                yield progress.with_text(f"{released}{space}{OFFER}", finished="stop")
                return
            yield _holding(progress, released, held)


def sentence_ends(text: str, start: int) -> list[int]:
    """Where sentences end from a position on, with the space after them."""
    begun = len(text) - len(text.lstrip())
    ends = (match.end() for match in _SENTENCE_END.finditer(text, max(begun, start)))
    return [end for end in ends if not _NO_END.search(text[max(0, end - _LONGEST_NO_END) : end])]


def _last_fitting(text: str, ends: Sequence[int]) -> int:
    """The end of what may be said: the first sentences as far as they go, and those after them if they are not too
    much."""
    first = next((end for end in ends if _num_words(text[:end]) >= _LEAST_WORDS), None)
    if first is None:
        return len(text)
    return max(end for end in ends if end == first or (end > first and _num_words(text[:end]) <= MAX_WORDS))


def _num_words(text: str) -> int:
    return len(text.split())


def _holding(progress: Progress, released: str, held: str) -> Progress:
    """Progress with what is held back at the beginning of its draft."""
    if not held:
        return replace(progress, committed=released)
    start = len(held)
    return progress.with_text(
        released,
        draft=held + progress.draft,
        draft_ends=(start, *(start + end for end in progress.draft_ends)),
        confidence=(1.0, *progress.confidence),
        draft_origin=progress.draft_origin,
        draft_masked=(False, *progress.draft_masked) if progress.draft_masked else (),
    )
