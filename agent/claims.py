"""Claims of deeds: small models say that they have done what no function has done ("The door is now unlocked.")."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing

from agent.brevity import sentence_ends
from agent.matched_text import named_in, words_of
from agent.words.language import language
from chat.progress import Progress
from chat.types import Tool

_ENGLISH = language("en")

NOT_DONE = "I haven't done that."
"""What is said in place of a claim, unless something else has been said before it: "Sure!" is nothing."""

_LEAST_WORDS = 2

_MAX_VERB = 40
"""Characters of a description in which its first word is."""


async def handing_over_tasks(replying: AsyncIterator[Progress]) -> AsyncIterator[Progress]:
    """The same response, unless its first sentence reports what only a task does ("Your timer is running."), or it says
    nothing: then it ends, without any text, as what `recognizes_tasks` calls a task. No function was called for it."""
    text, held = "", True
    async with aclosing(replying):  # type: ignore[type-var]
        async for progress in replying:
            if not held:
                yield progress
                continue
            text += progress.committed
            is_over = progress.finished is not None
            reports = False if progress.tool_calls else _ENGLISH.reports_task(text + (" " if is_over else ""))
            if reports or (progress.finished == "stop" and not text.strip() and not progress.tool_calls):
                yield progress.with_text("", finished="task")
                return
            held = reports is None and not is_over
            yield progress.with_text("" if held else text) if held or text != progress.committed else progress


async def without_claims(replying: AsyncIterator[Progress], uncalled: Sequence[Tool]) -> AsyncIterator[Progress]:
    """The same response up to the first sentence that claims what functions would do that were not called. A sentence
    that may become one is held back."""
    things = frozenset(word for tool in uncalled for word in named_in(tool.name))
    verbs = things.union(word for tool in uncalled for word in words_of(tool.description[:_MAX_VERB])[:1])
    text, said, start, is_free = "", 0, 0, False
    async with aclosing(replying):  # type: ignore[type-var]
        async for progress in replying:
            text += progress.committed
            is_over = progress.finished is not None
            while True:
                end = next(iter(sentence_ends(text, start)), None)
                sentence = text[start:end] if end is not None else text[start:] + (" " if is_over else "")
                claimed = False if is_free else _ENGLISH.claims_deed(sentence, verbs, things)
                if claimed:
                    instead = NOT_DONE if len(text[:start].split()) < _LEAST_WORDS else ""
                    yield progress.with_text(text[said:start] + instead, finished="stop")
                    return
                is_free = claimed is False
                if end is None:
                    break
                start, is_free = end, False
            until = len(text) if is_free or is_over or progress.tool_calls else start
            new, said = text[said:until], max(said, until)
            is_passed_on = new == progress.committed and said == len(text)  # a draft follows what is held back
            yield progress if is_passed_on else progress.with_text(new)
