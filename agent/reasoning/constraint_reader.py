"""Extracts the constraints of messages with a language model, sentence by sentence."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import aclosing
from dataclasses import replace

from agent.background_tasks import batch
from agent.language_model import LanguageModel
from agent.reasoning.constraint_prompt import EXAMPLE_TURNS, Sentence, constraint_prompt, sentences
from agent.reasoning.constraints import (
    CONSTRAINTS,
    NO_CONSTRAINT,
    SOME_CONSTRAINTS,
    Constraint,
    compatible,
    read_constraints,
)
from agent.reasoning.cost import Cost
from chat.types import Ask

_log = logging.getLogger("rejoinder.reasoning")

_MAX_TOKENS = 80
"""Of the constraints of one sentence."""

_SURELY_NONE = math.log(0.8)
"""Minimum log probability at which "none" is believed: the 1.5B says so too often. Fitted to IFEval's prompts at odd
places."""

_SURELY_CONTAINS = math.log(0.7)
"""Minimum log probability at which a text is believed to be demanded: often it is only what a message is about."""

_AT_ONCE = 6
"""Sentences: each has a copy of what was read of the examples."""


class ConstraintReader:
    """Extracts constraints. One for many requests, which share what was read of the examples.

    Args:
        model: for this alone. It keeps the examples.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model, self._lock, self._at_once = model, asyncio.Lock(), asyncio.Semaphore(_AT_ONCE)
        self._has_read_examples = False

    async def read(self, message: str, cost: Cost) -> list[Constraint]:
        """The constraints of a message; none if they cannot be known. Raises RuntimeError if the request failed.

        Args:
            cost: of the request. The first one pays for reading the examples.
        """
        extracted = sentences(message)
        try:
            await self._read_examples(cost)
            async with batch(self._extract(sentence.text, cost) for sentence in extracted) as tasks:
                read = await asyncio.gather(*tasks)
        except ValueError as error:
            _log.info("the constraints of a message are not known (%s)", error)
            return []
        return _constraints(list(zip(extracted, read, strict=True)))

    async def _read_examples(self, cost: Cost) -> None:
        async with self._lock:
            if not self._has_read_examples:
                await cost.write(self._model, Ask(EXAMPLE_TURNS, max_tokens=1))
                self._has_read_examples = True

    async def _extract(self, sentence: str, cost: Cost) -> list[Constraint]:
        async with self._at_once:
            model = self._model.fork()
            ask = Ask(constraint_prompt(sentence), grammar=CONSTRAINTS, max_tokens=_MAX_TOKENS)
            try:
                text, probability = await _generate(model, replace(ask, top_log_probabilities=1), cost)
            except ValueError:  # models that denoise blocks have no probabilities of tokens
                text, probability = await _generate(model, ask, cost)
            sure = text != NO_CONSTRAINT and probability >= _SURELY_CONTAINS
            if text == NO_CONSTRAINT and probability < _SURELY_NONE:
                text, _ = await _generate(model, replace(ask, grammar=SOME_CONSTRAINTS), cost)
            found = [one for one in read_constraints(text) if one.may_come_from(sentence)]
            return [one for one in found if sure or not one.may_be_topic]


async def _generate(model: LanguageModel, ask: Ask, cost: Cost) -> tuple[str, float]:
    """Whole lines, and the log probability of the first token; 0 if that is not known."""
    text, probability = "", 0.0
    async with aclosing(model.reply(ask)) as replying:  # type: ignore[type-var]
        async for progress in cost.counted(replying):
            if not text:
                probability = sum(score.log_probability for score in progress.scores[:1])
            text += progress.committed
            if progress.finished == "length":
                text = text.rpartition("\n")[0]
    return text, probability


def _constraints(read: list[tuple[Sentence, list[Constraint]]]) -> list[Constraint]:
    """The constraints of a message. Items of a list are examples of bullet points if the message asks for some."""
    only_examples = any(
        one.kind == "bullet points" and not sentence.is_item for sentence, found in read for one in found
    )
    return compatible(one for sentence, found in read for one in found if not (only_examples and sentence.is_item))
