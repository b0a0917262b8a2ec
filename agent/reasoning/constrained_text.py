"""A text that follows the constraints of a message on its form: written, checked by a program, and written again.

Constraints on characters and on both ends hold while the text is generated, as a grammar; the others, such as a number
of words, are checked afterwards. The language model is told what is wrong, and writes several new versions in one
batch, as the effort allows.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from agent.background_tasks import batch
from agent.language_model import LanguageModel
from agent.reasoning.constraint_prompt import revision_prompt
from agent.reasoning.constraints import Constraint, text_grammar
from agent.reasoning.cost import Cost
from agent.reasoning.prompt import ReasoningEffort
from chat.progress import Progress
from chat.types import Ask, Message

_log = logging.getLogger("rejoinder.reasoning")

_ROUNDS: Mapping[ReasoningEffort, Sequence[tuple[int, int]]] = {
    "low": ((1, 0),),
    "medium": ((2, 1),),
    "high": ((3, 2), (3, 2)),
}
"""Of each round: how many revisions of the best text so far are generated, and how many new texts alongside."""

_MAX_TOKENS = 2048
"""Of one text. A request for a longer one is answered as without an effort."""


@dataclass(frozen=True)
class _Prompt:
    """A conversation, and a language model that has read it."""

    model: LanguageModel
    messages: Sequence[Message]


@dataclass(frozen=True)
class _Draft:
    """A text with the progress that ended it, and how many constraints it follows."""

    end: Progress
    met: int


class ConstrainedText:
    """Writes one text.

    Args:
        model: for this alone.
        ask: the request, whose newest message is the user's.
        constraints: at least one.
        cost: what it takes is added to it.
    """

    def __init__(
        self, model: LanguageModel, ask: Ask, constraints: Sequence[Constraint], effort: ReasoningEffort, cost: Cost
    ) -> None:
        self._model, self._constraints, self._effort, self._cost = model, constraints, effort, cost
        limit = min(ask.max_tokens or _MAX_TOKENS, _MAX_TOKENS)
        self._ask = replace(ask, grammar=text_grammar(constraints), max_tokens=limit)
        self._num_drafts = self._prompt_tokens = 0

    async def write(self) -> Progress | None:
        """The text that follows the most constraints, the earliest of several, as if it had been generated in one step;
        None if none could be finished. Raises RuntimeError if the request failed."""
        try:
            request = await self._read(self._ask.messages)
            best, met_before = await self._draft(request), -1
            for revisions, others in _ROUNDS[self._effort]:
                if best is None:
                    best = await self._best(None, [request] * (revisions + others))
                    break
                if best.met in (len(self._constraints), met_before):  # a round that improved nothing is the last one
                    break
                met_before = best.met
                revision = await self._read(self._revision(best.end.committed))
                best = await self._best(best, [revision] * revisions + [request] * others)
        except ValueError as error:  # the context is too short
            _log.info("no text is worked out (%s)", error)
            return None
        return None if best is None else replace(best.end, prompt_tokens=self._prompt_tokens, cached_tokens=0)

    def _revision(self, text: str) -> list[Message]:
        problems = [one.problem(text) for one in self._constraints if not one.met(text)]
        return revision_prompt(self._ask.messages, text, problems)

    async def _best(self, best: _Draft | None, prompts: Sequence[_Prompt]) -> _Draft | None:
        """The best of the given text and of new ones: generation ends as soon as one follows all constraints."""
        most = max(1, self._cost.max_prompts)
        async with batch(self._draft(prompt) for prompt in prompts[:most]) as tasks:
            for finished in asyncio.as_completed(tasks):
                draft = await finished
                if draft is not None and (best is None or draft.met > best.met):
                    best = draft
                if best is not None and best.met == len(self._constraints):
                    break
        return best

    async def _read(self, messages: Sequence[Message]) -> _Prompt:
        """A prompt that is shared by all texts after it."""
        model = self._model.fork()
        await self._cost.write(model, Ask(messages, max_tokens=1))
        return _Prompt(model, messages)

    async def _draft(self, prompt: _Prompt) -> _Draft | None:
        """One text; None if it could not be finished. The first is the most likely one, the others are random."""
        variant, self._num_drafts = self._num_drafts, self._num_drafts + 1
        ask = replace(self._ask, messages=prompt.messages, variant=variant)
        text, end = "", Progress()
        try:
            async with aclosing(prompt.model.fork().reply(ask)) as replying:  # type: ignore[type-var]
                async for end in self._cost.counted(replying):
                    text += end.committed
                    self._prompt_tokens = self._prompt_tokens or end.prompt_tokens
        except ValueError as error:
            _log.info("a text failed (%s)", error)
            return None
        if end.finished != "stop":
            return None
        end = end.with_text(text.strip(), finished="stop")
        return _Draft(end, sum(constraint.met(end.committed) for constraint in self._constraints))
