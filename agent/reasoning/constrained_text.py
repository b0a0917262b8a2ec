"""A text that follows the constraints of a message on its form: written, checked by a program, and written again.

The language model lists the constraints first (`agent.reasoning.constraints`). Those on characters and on both ends
hold while the text is generated, as a grammar; the others, such as a number of words, are checked afterwards. The
language model is told what is wrong, and writes several new versions in one batch, as the effort allows.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from agent.language_model import LanguageModel
from agent.reasoning.constraint_prompt import EXAMPLE_TURNS, constraint_prompt, revision_prompt, sentences
from agent.reasoning.constraints import (
    CONSTRAINTS,
    NO_CONSTRAINT,
    SOME_CONSTRAINTS,
    Constraint,
    num_met,
    read_constraints,
    text_grammar,
    without_contradictions,
)
from agent.reasoning.cost import Cost
from agent.reasoning.prompt import ReasoningEffort
from agent.reasoning.shared_examples import SharedExamples
from chat.types import Ask, Lark, Message

_log = logging.getLogger("rejoinder.reasoning")

_ROUNDS: Mapping[ReasoningEffort, Sequence[tuple[int, int]]] = {
    "low": ((1, 0),),
    "medium": ((2, 1),),
    "high": ((3, 2), (3, 2)),
}
"""Of each round: how often the best text so far is revised, and how many others are written beside that."""

_MAX_CONSTRAINT_TOKENS = 80
"""Of one sentence."""

_SURELY_NONE = math.log(0.8)
"""A sentence has no constraint if the language model is at least so sure: it says so too often. Fitted to IFEval's
prompts at odd places."""


class ConstrainedText:
    """Writes one text.

    Args:
        model: for this alone.
        ask: the request, whose newest message is the user's.
        examples: shared with other requests.
        cost: what it takes is added to it.
    """

    def __init__(
        self, model: LanguageModel, ask: Ask, effort: ReasoningEffort, examples: SharedExamples, cost: Cost
    ) -> None:
        self._model, self._ask, self._effort, self._examples, self._cost = model, ask, effort, examples, cost
        self._variants = 0

    async def write(self) -> str:
        """The text that follows the most constraints, the earliest of several; empty if the message has none, or no
        text was finished. Raises RuntimeError if the request failed."""
        constraints = await self.constraints()
        if not constraints:
            return ""
        grammar = text_grammar(constraints)
        best, met_before = await self._draft(self._ask.messages, grammar), -1
        for revisions, others in _ROUNDS[self._effort]:
            met = num_met(constraints, best) if best else -1
            if met == len(constraints) or (best and met == met_before):  # a round that changed nothing was the last
                break
            met_before = met
            problems = [one.problem(best) for one in constraints if not one.met(best)]
            revised = revision_prompt(self._ask.messages, best, problems) if best else self._ask.messages
            asked = [revised] * revisions + [self._ask.messages] * others
            best = await self._best(best, asked, grammar, constraints)
        return best

    async def constraints(self) -> list[Constraint]:
        """What the newest message demands of the text. Raises RuntimeError if the request failed."""
        said = sentences(self._ask.messages[-1].content)
        try:
            model = await self._examples.reader(EXAMPLE_TURNS, self._cost)
            listed = await asyncio.gather(*(self._listed(model.fork(), sentence) for sentence in said))
        except ValueError as error:
            _log.info("the constraints of a message are not known (%s)", error)
            return []
        read = [
            (one, sentence) for sentence, lines in zip(said, listed, strict=True) for one in read_constraints(lines)
        ]
        return without_contradictions([one for one, sentence in read if one.may_come_from(sentence)])

    async def _listed(self, model: LanguageModel, sentence: str) -> str:
        """The constraints in a sentence, a line each."""
        ask = Ask(
            constraint_prompt(sentence), grammar=CONSTRAINTS, max_tokens=_MAX_CONSTRAINT_TOKENS, top_log_probabilities=1
        )
        text, odds = "", 0.0
        async with aclosing(model.reply(ask)) as replying:  # type: ignore[type-var]
            async for progress in self._cost.counted(replying):
                odds = odds or sum(score.log_probability for score in progress.scores[:1])
                text += progress.committed
        if text == NO_CONSTRAINT and odds < _SURELY_NONE:
            return await self._cost.write(model, replace(ask, grammar=SOME_CONSTRAINTS))
        return text

    async def _best(
        self, best: str, asked: Sequence[Sequence[Message]], grammar: Lark | None, constraints: Sequence[Constraint]
    ) -> str:
        """The best of the given text and of new ones: generation ends as soon as one follows all constraints."""
        tasks = [asyncio.create_task(self._draft(messages, grammar)) for messages in asked]
        try:
            for finished in asyncio.as_completed(tasks):
                text = await finished
                if text and (not best or num_met(constraints, text) > num_met(constraints, best)):
                    best = text
                if best and num_met(constraints, best) == len(constraints):
                    break
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return best

    async def _draft(self, messages: Sequence[Message], grammar: Lark | None) -> str:
        """One text; empty if it could not be finished. The first is the most likely one, the others are random."""
        variant, self._variants = self._variants, self._variants + 1
        ask = replace(self._ask, messages=messages, grammar=grammar, variant=variant)
        try:
            return (await self._cost.write(self._model.fork(), ask)).strip()
        except ValueError as error:
            _log.info("a text failed (%s)", error)
            return ""
