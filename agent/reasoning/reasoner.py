"""Reasoning effort: an answer is worked out several times, and what most of the samples say is taken.

Samples reason step by step in the model's own style, after the client's own prompt, and end with the answer
(self-consistency, arXiv 2203.11171). A number is also worked out by small programs, which are run (program-aided
language models, arXiv 2211.10435): they cost a quarter of that. The samples of a round are generated in one batch and
share what was read of the prompt. Generation ends as soon as the others cannot change the majority (adaptive
consistency, arXiv 2305.11860). What asks for a longer text has no answer to vote on: see
`agent.reasoning.constrained_text`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from statistics import mean

from agent.background_tasks import batch
from agent.language_model import LanguageModel
from agent.reasoning.answers import program_answer, steps_answer, vote
from agent.reasoning.cost import Cost
from agent.reasoning.equations import corrected
from agent.reasoning.prompt import (
    KIND_BIAS,
    KINDS,
    Kind,
    Method,
    ReasoningEffort,
    beginning,
    kind_prompts,
    prompt,
    sample_grammar,
)
from chat.progress import LikelyToken
from chat.types import Ask, Message

_log = logging.getLogger("rejoinder.reasoning")

_PROGRAM: tuple[Method, ...] = ("program",)
_STEPS: tuple[Method, ...] = ("steps",)

_ROUNDS: Mapping[ReasoningEffort, Sequence[Sequence[Method]]] = {
    "low": (_PROGRAM * 4, _STEPS),
    "medium": (_PROGRAM * 5 + _STEPS * 2,),
    "high": (_PROGRAM + _STEPS * 3, _PROGRAM + _STEPS * 5),
}
"""The samples of each round for a number. Another round is begun if the one before has not decided. Chosen from 31 of
GSM8K's train problems (docs/benchmarks/public.md)."""

_CHOICE_ROUNDS: Mapping[ReasoningEffort, Sequence[Sequence[Method]]] = {
    "low": (_PROGRAM * 3, _STEPS * 2),
    "medium": (_PROGRAM * 3 + _STEPS * 3,),
    "high": (_PROGRAM * 3 + _STEPS * 3, _STEPS * 4),
}
"""The same for a choice."""

_MAX_TOKENS: dict[Method, int] = {"program": 160, "steps": 480}

_MAX_CORRECTIONS = 4
"""Of one sample: with more wrong results it is worth nothing."""

_MAX_KIND_TOKENS, _TOP_KINDS = 8, 8
"""Tokens of a kind, and how many of those that it may begin with are compared."""

_UNLIKELY = -12.0
"""The log probability of a kind that is not among them."""

_LEAD = 3
"""With so many votes more than any other, an answer is taken although the samples that are left could overtake it."""

_CONCLUSION = "\n\nYou have worked it out, and answer now with the result:\n{text}\n\nSo the answer is {answer}."


@dataclass(frozen=True)
class Sample:
    """One attempt.

    Attributes:
        answer: what it comes to; empty if it has no answer.
        text: the program or the steps.
    """

    method: Method
    answer: str
    text: str


@dataclass(frozen=True)
class Conclusion:
    """What was worked out.

    Attributes:
        answer: a number, a time or one of the things to choose from.
        sample: the shortest of the samples that say so.
        votes, samples: how many say so, and of how many.
    """

    answer: str
    sample: Sample
    votes: int
    samples: int


class Reasoner:
    """Works out the answer to a conversation, whose newest message is the user's.

    Args:
        model: has read of the conversation what it likes. It must be for this alone.

    Attributes:
        cost: what it took so far.
    """

    def __init__(self, model: LanguageModel, messages: Sequence[Message], effort: ReasoningEffort) -> None:
        self._models: dict[Method, LanguageModel] = {"program": model.fork(), "steps": model}
        self._messages, self._effort = messages, effort
        self._begun: Counter[Method] = Counter()
        self._kind: Kind | None = None
        self.cost = Cost()

    async def kind(self) -> Kind:
        """What the answer is: a text is not worked out. Raises RuntimeError if the request failed."""
        if self._kind is None:
            asked = kind_prompts(self._messages[-1].content)
            told = [await self._told_kind(one, _TOP_KINDS) or await self._told_kind(one, None) for one in asked]
            self._kind = _likeliest_kind(told)
        return self._kind

    async def _told_kind(self, asked: Sequence[Message], top: int | None) -> Mapping[Kind, float]:
        """The log probabilities of the kinds that the language model may mean; none if it cannot be asked.

        Args:
            top: how many tokens are compared. None takes what it writes: models that denoise blocks have no
                probabilities of tokens.
        """
        ask = Ask(asked, grammar=KINDS, max_tokens=_MAX_KIND_TOKENS, top_log_probabilities=top)
        likely: Sequence[LikelyToken] = ()
        text = ""
        try:
            async with aclosing(self._models["program"].reply(ask)) as replying:  # type: ignore[type-var]
                async for progress in self.cost.counted(replying):
                    text += progress.committed
                    likely = likely or [one for score in progress.scores[:1] for one in score.top]
        except ValueError as error:
            _log.info("the kind of an answer is not known (%s)", error)
            return {}
        return _odds(likely or [LikelyToken(text, b"", 0.0)])

    async def conclude(self) -> Conclusion | None:
        """What most samples say; None if a text is asked for, or no two samples agree: of a number, one is enough at
        `low`. Raises RuntimeError if the request failed."""
        kind = await self.kind()
        if kind == "text":
            return None
        found: list[Sample] = []
        rounds = (_ROUNDS if kind == "number" else _CHOICE_ROUNDS)[self._effort]
        for number, methods in enumerate(rounds, 1):
            later = sum(map(len, rounds[number:]))
            try:
                for method in set(methods) - set(self._begun):  # all samples share what is read here
                    await self.cost.write(self._models[method], Ask(prompt(method, kind, self._messages), max_tokens=1))
            except ValueError as error:
                _log.info("nothing is worked out (%s)", error)
                return None
            await self._round(methods, kind, found, later)
            if _is_decided(found, later):
                break
        return _majority(found, 1 if kind == "number" and self._effort == "low" else 2)

    async def _round(self, methods: Sequence[Method], kind: Kind, found: list[Sample], later: int) -> None:
        """Generate samples until they have decided, and add those that have an answer to `found`.

        Args:
            later: how many samples other rounds may add.
        """
        most = max(2, self.cost.max_prompts)
        async with batch(self._sample(method, kind) for method in methods[:most]) as tasks:
            for number, finished in enumerate(asyncio.as_completed(tasks), 1):
                sample = await finished
                if sample.answer:
                    found.append(sample)
                if _is_decided(found, len(tasks) - number + later):
                    break

    async def _sample(self, method: Method, kind: Kind) -> Sample:
        """One sample: of each method, the first is the most likely one, and the others are random. One whose grammar
        cannot be followed has no answer."""
        variant, read = self._begun[method], prompt(method, kind, self._messages)
        self._begun[method] += 1
        model = self._models[method].fork()
        begin = text = beginning(method, kind)
        until = corrected if method == "steps" else None
        for _ in range(1 + _MAX_CORRECTIONS):  # it is written on after a wrong result, with the right one
            grammar = sample_grammar(method, kind, text)
            ask = Ask(read, grammar=grammar, max_tokens=_MAX_TOKENS[method], variant=variant)
            try:
                written = await self.cost.write(model, ask, until)
            except ValueError as error:  # the prompt has been read before, so it is not that
                _log.info("a sample failed (%s)", error)
                break
            if until is None or (fixed := until(written, 0)) is None:
                written = written.removeprefix(begin)
                found = program_answer(written) if method == "program" else steps_answer(written, kind)
                return Sample(method, found, written)
            text = fixed
        return Sample(method, "", "")


def with_conclusion(messages: Sequence[Message], conclusion: Conclusion) -> list[Message]:
    """The conversation with what was worked out on its newest message, so that the language model answers with it."""
    newest = messages[-1]
    worked_out = _CONCLUSION.format(text=conclusion.sample.text.strip(), answer=conclusion.answer)
    return [*messages[:-1], replace(newest, content=newest.content + worked_out)]


def _odds(likely: Sequence[LikelyToken]) -> dict[Kind, float]:
    """The log probability of each kind that a token begins. Several may begin one: "number" with "num", too."""
    odds = dict[Kind, float]()
    for kind in KIND_BIAS:
        begun = [one.log_probability for one in likely if one.text and kind.startswith(one.text)]
        if begun:
            odds[kind] = max(begun)
    return odds


def _likeliest_kind(told: Sequence[Mapping[Kind, float]]) -> Kind:
    """The kind that is the likeliest of all that was told, with `KIND_BIAS`; a text if nothing was."""
    known = [odds for odds in told if odds]

    def odds_of(kind: Kind) -> float:
        return KIND_BIAS[kind] + mean(odds.get(kind, _UNLIKELY) for odds in known)

    return max(KIND_BIAS, key=odds_of) if known else "text"


def _is_decided(found: Sequence[Sample], left: int) -> bool:
    """Whether samples that are still being generated cannot change the majority, or hardly so."""
    votes = [count for _, count in Counter(vote(sample.answer) for sample in found).most_common(2)]
    if not votes or votes[0] < 2:
        return False
    lead = votes[0] - (votes[1] if len(votes) > 1 else 0)
    return lead > left or lead >= _LEAD


def _majority(found: Sequence[Sample], needed: int) -> Conclusion | None:
    """What most samples say, if at least `needed` do, in the words of the steps if they say so; among equals, what was
    said first."""
    votes = Counter(vote(sample.answer) for sample in found)
    if not votes or (best := votes.most_common(1)[0])[1] < needed:
        return None
    voters = [sample for sample in found if vote(sample.answer) == best[0]]
    forms = Counter(sample.answer for sample in voters if sample.method == "steps") or Counter(
        sample.answer for sample in voters
    )
    said = forms.most_common(1)[0][0]
    shortest = min((sample for sample in voters if sample.answer == said), key=lambda sample: len(sample.text))
    return Conclusion(said, shortest, best[1], len(found))
