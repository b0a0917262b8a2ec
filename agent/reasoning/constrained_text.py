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
from dataclasses import dataclass, replace

from agent.language_model import LanguageModel
from agent.reasoning.constraint_prompt import EXAMPLE_TURNS, constraint_prompt, revision_prompt, sentences
from agent.reasoning.constraints import (
    CONSTRAINTS,
    NO_CONSTRAINT,
    SOME_CONSTRAINTS,
    Constraint,
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


_MAX_TOKENS = 2048
"""Of one text. A request for a longer one is answered as without an effort."""

_MAX_CACHED_TOKENS = 8192
"""Of the prompts of all texts of a round, of which each has a copy. After a long conversation there are fewer."""


@dataclass(frozen=True)
class _Prompt:
    """A conversation, and a language model that has read it."""

    model: LanguageModel
    messages: Sequence[Message]


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
        self._constraints: Sequence[Constraint] = ()
        self._grammar: Lark | None = None
        self._num_drafts = 0

    async def write(self) -> str:
        """The text that follows the most constraints, the earliest of several; empty if the message has none, or no
        text was finished. Raises RuntimeError if the request failed."""
        self._constraints = await self.constraints()
        if not self._constraints:
            return ""
        self._grammar = text_grammar(self._constraints)
        try:
            first = await self._read(self._ask.messages)
            best, met_before = await self._draft(first), -2
            for revisions, others in _ROUNDS[self._effort]:
                met = self._num_met(best)
                if met == len(self._constraints) or met == met_before:  # a round that improved nothing is the last one
                    break
                problems = [one.problem(best) for one in self._constraints if not one.met(best)]
                again = await self._read(revision_prompt(self._ask.messages, best, problems)) if best else first
                best, met_before = await self._best(best, [again] * revisions + [first] * others), met
        except ValueError as error:  # the context is too short
            _log.info("no text is worked out (%s)", error)
            return ""
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

    async def _best(self, best: str, prompts: Sequence[_Prompt]) -> str:
        """The best of the given text and of new ones: generation ends as soon as one follows all constraints."""
        most = max(1, _MAX_CACHED_TOKENS // max(1, self._cost.prompt_tokens))
        tasks = [asyncio.create_task(self._draft(prompt)) for prompt in prompts[:most]]
        try:
            for finished in asyncio.as_completed(tasks):
                text = await finished
                if self._num_met(text) > self._num_met(best):
                    best = text
                if self._num_met(best) == len(self._constraints):
                    break
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return best

    async def _read(self, messages: Sequence[Message]) -> _Prompt:
        """A prompt that all texts share which are written after it."""
        model = self._model.fork()
        await self._cost.write(model, Ask(messages, max_tokens=1))
        return _Prompt(model, messages)

    async def _draft(self, prompt: _Prompt) -> str:
        """One text; empty if it could not be finished. The first is the most likely one, the others are random."""
        variant, self._num_drafts = self._num_drafts, self._num_drafts + 1
        limit = min(self._ask.max_tokens or _MAX_TOKENS, _MAX_TOKENS)
        ask = replace(self._ask, messages=prompt.messages, grammar=self._grammar, max_tokens=limit, variant=variant)
        try:
            return (await self._cost.write(prompt.model.fork(), ask)).strip()
        except ValueError as error:
            _log.info("a text failed (%s)", error)
            return ""

    def _num_met(self, text: str) -> int:
        """How many constraints a text follows; -1 if there is none."""
        return sum(constraint.met(text) for constraint in self._constraints) if text else -1
