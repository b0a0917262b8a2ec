"""Reasoning effort: an answer is worked out several times, and what most of the samples say is taken.

A number is worked out by small programs, which are run (program-aided language models, arXiv 2211.10435), and by
notes that end with it; an option such as yes or no by notes alone. The samples of a round are generated in one batch
and share what was read of the prompt. The majority decides (self-consistency, arXiv 2203.11171), and generation ends as
soon as the others cannot change it. What asks for a longer text is not reasoned about: there is nothing to vote on.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from typing import Literal, get_args

from agent.language_model import LanguageModel
from agent.program.evaluator import read_clock, run_program
from agent.program.grammar import computation_grammar
from agent.program.speech import answer, spoken_clock
from agent.program.values import BadProgram, Clock, Value, local_time
from chat.types import Ask, Lark, Message, lark_string

ReasoningEffort = Literal["low", "medium", "high"]

Method = Literal["program", "notes"]

_ROUNDS: dict[ReasoningEffort, Sequence[Sequence[Method]]] = {
    "low": (("program",), ("notes",)),
    "medium": (("program", "notes"), ("program", "notes", "notes")),
    "high": (("program",) * 4 + ("notes",) * 4,),
}
"""The samples of each round. Another round is begun if the one before has decided nothing: no two samples agree, or
not more than on something else. One sample decides at `low`."""

_MAX_TOKENS: dict[Method, int] = {"program": 200, "notes": 320}

_LEAD = 3
"""With so many votes more than any other, an answer is taken although the samples that are left could overtake it."""

Kind = Literal["number", "option", "text"]

_NOTES = "\n\nWork it out step by step, one short line for each step. End with a line `Answer: ` and {only} alone."

_PROGRAM = """For each message, say what its answer is: a number (or a time), an option (yes or no, or one of a few \
things that are named), or a text. For a number, write a short program: one assignment for each fact and each step, \
with names that say what the number is, and a last line `answer = …`.

Message: Ann has three boxes with 12 pencils each. She gives half of her pencils to Tom and loses 4. How many are left?
number
boxes = 3
pencils_per_box = 12
pencils = boxes * pencils_per_box
given_to_tom = pencils / 2
lost = 4
answer = pencils - given_to_tom - lost

Message: Write a short letter to my 3 neighbors about the party on the 12th.
text

Message: Lea has 12 coins, Max has 3 more than half of that. Who has more coins?
option

Message: A jacket costs $80 and is sold at a 25% discount. Sales tax is 10%. How much change does Ben get for $100?
number
price = 80
discount = price * 25 / 100
discounted_price = price - discount
tax = discounted_price * 10 / 100
paid = 100
answer = paid - (discounted_price + tax)

Message: What is an interest rate?
text

Message: Lea is twice as old as Max, who is 3 years older than Ida. In 5 years Ida will be 12. How old is Lea?
number
ida_in_5_years = 12
ida = ida_in_5_years - 5
max_age = ida + 3
answer = max_age * 2

Message: Is it true that 17 is a prime number?
option

Message: A film starts at 9:40 pm and takes 95 minutes. When does it end?
number
start = time("9:40 pm")
answer = start + minutes(95)

Message: Explain in 100 words how a plane flies.
text"""

_NUMBER = "number\n"
"""What programs follow, so that they begin with the word that was chosen for the kind of the answer."""

_PROGRAM_GRAMMAR = computation_grammar(_NUMBER)

_CONCLUSION = "\n\nYou have worked it out:\n{text}\n\nSo the answer is {answer}. Answer now with that."

_ANSWER = "Answer: "
"""Begins the last line of notes."""

_NOTES_GRAMMARS = {
    kind: Lark(
        f'start: LINE* "{_ANSWER}" ANSWER\nLINE: /[^\\n]*\\n/ & ~/{_ANSWER}[^\\n]*\\n/\nANSWER: /{pattern}/\n'
    )
    for kind, pattern in (
        ("number", r"-?[0-9][0-9,]*(\.[0-9]+)?|[0-9][0-9]?:[0-9][0-9]( ?[AaPp][Mm])?"),
        ("option", r"[^\n]+"),
    )
}


@dataclass(frozen=True)
class Sample:
    """One attempt.

    Attributes:
        answer: what it comes to; empty if it has no answer.
        text: the program or the notes.
    """

    method: Method
    answer: str
    text: str


@dataclass(frozen=True)
class Conclusion:
    """What was worked out.

    Attributes:
        answer: a number, a time or an option.
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
        model: reads the conversation. It must be for this alone.

    Attributes:
        prompt_tokens, cached_tokens: of the prompts that were read, and how much of them was in a cache already.
        tokens: generated, with those of samples that were given up.
        steps: forward passes of all samples. They share them, so there were fewer.
    """

    def __init__(self, model: LanguageModel, messages: Sequence[Message], effort: ReasoningEffort) -> None:
        self._messages, self._effort = list(messages), effort
        self._models: dict[Method, LanguageModel] = {"notes": model, "program": model.fork()}
        self._num_begun = 0
        self.prompt_tokens = self.cached_tokens = self.tokens = self.steps = 0

    async def conclude(self) -> Conclusion | None:
        """What most samples say; None if a text is asked for, or no sample has an answer. Raises what the language
        model raises."""
        kinds = Lark("start: " + " | ".join(map(lark_string, get_args(Kind))))
        kind = await self._write(self._models["program"], Ask(self._program_messages(), grammar=kinds, max_tokens=8))
        if kind not in ("number", "option"):
            return None
        found: list[Sample] = []
        for methods in _ROUNDS[self._effort]:
            await self._round(methods if kind == "number" else ["notes"] * len(methods), kind, found)
            if _is_decided(found, 0) or (found and self._effort == "low"):
                break
        return _majority(found)

    async def _round(self, methods: Sequence[Method], kind: str, found: list[Sample]) -> None:
        """Generate samples until they have decided, and add those that have an answer to `found`."""
        has_read = {method: asyncio.Event() for method in methods}
        tasks = []
        for number, method in enumerate(methods):
            leads = method not in methods[:number]
            tasks.append(asyncio.create_task(self._sample(method, kind, has_read[method], leads=leads)))
        try:
            for number, finished in enumerate(asyncio.as_completed(tasks), 1):
                sample = await finished
                if sample.answer:
                    found.append(sample)
                if _is_decided(found, len(tasks) - number):
                    break
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _sample(self, method: Method, kind: str, has_read: asyncio.Event, *, leads: bool) -> Sample:
        """One sample. The one that leads reads the prompt; the others continue from there."""
        model, variant = self._models[method], self._num_begun
        self._num_begun += 1
        if method == "program":
            messages, grammar = self._program_messages(), _PROGRAM_GRAMMAR
        else:
            only = "the number or the time" if kind == "number" else "the option"
            messages, grammar = self._with(_NOTES.format(only=only)), _NOTES_GRAMMARS[kind]
        ask = Ask(messages, grammar=grammar, max_tokens=_MAX_TOKENS[method], variant=0 if leads else variant)
        if not leads:
            await has_read.wait()
            model = model.fork()
        try:
            text = await self._write(model, ask, has_read)
        finally:
            has_read.set()
        text = text.removeprefix(_NUMBER)
        return Sample(method, _program_answer(text) if method == "program" else _notes_answer(text), text)

    async def _write(self, model: LanguageModel, ask: Ask, has_read: asyncio.Event | None = None) -> str:
        """What the language model writes; empty if it was cut off. The event is set once it has read the prompt."""
        text, tokens, steps = "", 0, 0
        async with aclosing(model.reply(ask)) as replying:  # type: ignore[type-var]
            async for progress in replying:
                if has_read is not None:
                    has_read.set()
                if not text and not tokens:
                    self.prompt_tokens += progress.prompt_tokens - progress.cached_tokens
                text += progress.committed
                self.tokens += progress.tokens - tokens
                self.steps += progress.step - steps
                tokens, steps = progress.tokens, progress.step
                if progress.finished == "length":
                    return ""
        return text

    def _with(self, instruction: str) -> list[Message]:
        """The conversation with an instruction after its newest message, so that what is before is read once."""
        return [*self._messages[:-1], Message("user", self._messages[-1].content + instruction)]

    def _program_messages(self) -> list[Message]:
        """The conversation after the instructions and examples for programs, which all requests share."""
        given = [message for message in self._messages if message.role == "system"]
        system = "\n\n".join([_PROGRAM, *(message.content for message in given)])
        return [Message("system", system), *(message for message in self._messages if message not in given)]


def with_conclusion(messages: Sequence[Message], conclusion: Conclusion) -> list[Message]:
    """The conversation with what was worked out on its newest message, so that the language model answers with it."""
    newest = messages[-1]
    worked_out = _CONCLUSION.format(text=conclusion.sample.text.strip(), answer=conclusion.answer)
    return [*messages[:-1], replace(newest, content=newest.content + worked_out)]


def _program_answer(program: str) -> str:
    """What a program computes; empty if it cannot be run."""
    now = local_time()
    try:
        answers = run_program(program, now, {}).answers
        return _written(answers[-1][0], now) if answers else ""
    except BadProgram:
        return ""


def _notes_answer(notes: str) -> str:
    """What the last line of notes says, as `_written` writes it."""
    last = notes.rpartition(_ANSWER)[2].strip(" .*\"'()").lower()
    try:
        return _written(Fraction(last.replace(",", "")), local_time())
    except ValueError:
        pass
    try:
        return _written(read_clock(last), local_time()) if ":" in last else last
    except BadProgram:
        return last


def _written(value: Value, now: datetime) -> str:
    """A value in the one form in which samples are compared: numbers with two decimals at most, or four below one."""
    match value:
        case Fraction():
            number = round(value, 2 if abs(value) >= 1 else 4)
            return str(number) if number.denominator == 1 else str(float(number))
        case Clock():
            return spoken_clock(value).lower()
    return answer(value, "", now).removeprefix("It's ").removeprefix("That's ").removesuffix(".").lower()


def _is_decided(found: Sequence[Sample], left: int) -> bool:
    """Whether samples that are still being generated cannot change the majority, or hardly so."""
    votes = [count for _, count in Counter(sample.answer for sample in found).most_common(2)]
    if not votes or votes[0] < 2:
        return False
    lead = votes[0] - (votes[1] if len(votes) > 1 else 0)
    return lead > left or lead >= _LEAD


def _majority(found: Sequence[Sample]) -> Conclusion | None:
    """What most samples say; among equals, what was said first."""
    if not found:
        return None
    votes = Counter(sample.answer for sample in found)
    winner, count = votes.most_common(1)[0]
    shortest = min((sample for sample in found if sample.answer == winner), key=lambda sample: len(sample.text))
    return Conclusion(winner, shortest, count, len(found))
