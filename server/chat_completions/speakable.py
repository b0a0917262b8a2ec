"""Text for a voice (`speakable`): what our own one would get of an answer, for clients that synthesize it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace

from server.chat_completions.generation import Update
from voice.clauses import ClauseSplitter


async def speakable_updates(updates: AsyncIterator[Update]) -> AsyncIterator[Update]:
    """The same answer clause by clause, in words that a voice can pronounce. It has no draft."""
    splitter, begun = ClauseSplitter(), False
    async with aclosing(updates):  # type: ignore[type-var]
        async for update in updates:
            clauses = splitter.push(update.text)
            if update.finish_reason is not None:
                clauses += splitter.flush()
            words = " ".join(spoken for clause in clauses if (spoken := clause.spoken()))
            text = f" {words}" if words and begun else words
            begun = begun or bool(words)
            yield replace(update, text=text, draft="", scores=())
