"""Constraints of messages with a scripted language model: what is asked, what is believed, and what is read once."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent.reasoning.constraint_prompt import EXAMPLE_TURNS
from agent.reasoning.constraint_reader import ConstraintReader
from agent.reasoning.constraints import SOME_CONSTRAINTS, Constraint
from agent.reasoning.cost import Cost
from chat.progress import Progress, ScoredToken
from chat.types import Ask
from tests.fakes import run_on_virtual_clock


@dataclass
class ScriptedModel:
    """Lists the constraints of sentences, and `none` for others. A fork follows the same script.

    Attributes:
        none: how likely `none` is. Below 0.8 it is the first answer to every sentence.
        cut_off: whether lists end before they are complete.
        has_scores: whether the probabilities of tokens are known.
        failures: of so many requests that read the examples.
    """

    listed: Mapping[str, str]
    none: float = 0.9
    cut_off: bool = False
    has_scores: bool = True
    failures: int = 0
    asks: list[Ask] = field(default_factory=list)

    def fork(self) -> Any:
        return self

    async def reply(self, ask: Ask) -> AsyncIterator[Progress]:
        if ask.top_log_probabilities is not None and not self.has_scores:
            raise ValueError("no probabilities")
        self.asks.append(ask)
        await asyncio.sleep(1.0)
        if ask.max_tokens == 1:
            if self.failures:
                self.failures -= 1
                raise ValueError("too long")
            yield Progress("x", tokens=1, step=1, finished="length", prompt_tokens=900)
            return
        sentence = ask.messages[-1].content
        line = self.listed.get(sentence, "none")
        if ask.grammar == SOME_CONSTRAINTS:
            line = self.listed.get(sentence, "sentences exactly 1")
        elif self.none < 0.8:
            line = "none"
        score = ScoredToken("x", b"x", math.log(self.none), 1, ())
        scores = () if ask.top_log_probabilities is None else (score,)
        yield Progress(line[:4], tokens=3, step=3, prompt_tokens=950, scores=scores)
        finished = "length" if self.cut_off else "stop"
        yield Progress(line[4:], tokens=5, step=5, finished=finished, prompt_tokens=950)  # type: ignore[arg-type]


def read(model: ScriptedModel, message: str, cost: Cost | None = None) -> list[Constraint]:
    async def work() -> list[Constraint]:
        return await ConstraintReader(model).read(message, cost or Cost())  # type: ignore[arg-type]

    return run_on_virtual_clock(work)


LONG = "It must have at least four words."
FOUR_WORDS = {LONG: "words at least 4"}


def test_each_sentence_is_asked_for_its_constraints() -> None:
    model, cost = ScriptedModel(FOUR_WORDS), Cost()
    assert read(model, f"Write about rain. {LONG}\nThanks a lot!", cost) == [Constraint("words", "", "at least", 4)]
    assert [ask.messages[-1].content for ask in model.asks[1:]] == ["Write about rain.", LONG, "Thanks a lot!"]
    assert cost.tokens == 1 + 3 * 5 and cost.prompt_tokens == 950


def test_an_uncertain_none_is_asked_again() -> None:
    assert read(ScriptedModel(FOUR_WORDS, none=0.6), LONG) == [Constraint("words", "", "at least", 4)]
    assert read(ScriptedModel({}, none=0.6), "One sentence, please.") == [Constraint("sentences", "", "exactly", 1)]
    assert read(ScriptedModel({}, none=0.9), "Make it short, please.") == []


def test_what_a_message_may_be_about_is_no_constraint_unless_it_is_certain() -> None:
    sentence = "It should mention the sea."
    model = ScriptedModel({sentence: 'contains "sea"'}, none=0.9)
    assert read(model, sentence) == [Constraint("contains", "sea")]
    assert read(ScriptedModel({sentence: 'contains "sea"\navoids ","'}, none=0.6), sentence) == [
        Constraint("avoids", ",")
    ]


def test_without_probabilities_none_is_believed() -> None:
    assert read(ScriptedModel(FOUR_WORDS, has_scores=False), LONG) == [Constraint("words", "", "at least", 4)]
    assert read(ScriptedModel({}, has_scores=False), LONG) == []


@pytest.mark.parametrize("line", ["words at", "words at least ", 'avoids "ab', "words at least 4\nwords at most 1"])
def test_a_line_that_is_cut_off_is_no_constraint(line: str) -> None:
    found = read(ScriptedModel({LONG: line}, cut_off=True), LONG)
    assert found == ([Constraint("words", "", "at least", 4)] if "\n" in line else [])


def test_words_and_numbers_that_the_sentence_does_not_have_are_no_constraint() -> None:
    sentence = "Write a poem of at most 50 words about the sea."
    lines = 'contains "umbrella"\navoids "e"\navoids "oem"\nwords at most 100\nwords at most 49'
    assert read(ScriptedModel({sentence: lines}), sentence) == [Constraint("words", "", "at most", 49)]


def test_items_of_a_list_have_constraints_unless_they_are_examples_of_one() -> None:
    items = {"Use 300 words or more.": "words at least 300", "No commas.": 'avoids ","'}
    assert len(read(ScriptedModel(items), "Rules:\n- Use 300 words or more.\n* No commas.")) == 2
    asked = {"Write 2 bullet points such as:": "bullet points exactly 2", "This is a point.": 'contains "point"'}
    found = read(ScriptedModel(asked), "Write 2 bullet points such as:\n* This is a point.")
    assert found == [Constraint("bullet points", "", "exactly", 2)]


def test_requests_at_the_same_time_read_the_examples_once_and_the_first_pays() -> None:
    model = ScriptedModel(FOUR_WORDS)

    async def work() -> list[Cost]:
        reader, costs = ConstraintReader(model), [Cost(), Cost(), Cost()]  # type: ignore[arg-type]
        await asyncio.gather(*(reader.read(LONG, cost) for cost in costs))
        return costs

    assert sorted(cost.tokens for cost in run_on_virtual_clock(work)) == [5, 5, 6]
    assert [ask.max_tokens for ask in model.asks].count(1) == 1 and model.asks[0].messages == EXAMPLE_TURNS


def test_examples_that_could_not_be_read_are_read_by_the_next_request() -> None:
    model = ScriptedModel(FOUR_WORDS, failures=1)

    async def work() -> tuple[list[Constraint], list[Constraint]]:
        reader = ConstraintReader(model)  # type: ignore[arg-type]
        return await reader.read(LONG, Cost()), await reader.read(LONG, Cost())

    assert run_on_virtual_clock(work) == ([], [Constraint("words", "", "at least", 4)])
