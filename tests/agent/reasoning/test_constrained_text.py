"""A text under constraints with a scripted language model: what is listed, checked and written again."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from agent.reasoning.constrained_text import ConstrainedText
from agent.reasoning.constraints import SOME_CONSTRAINTS
from agent.reasoning.cost import Cost
from agent.reasoning.prompt import ReasoningEffort
from agent.reasoning.shared_examples import SharedExamples
from chat.progress import Progress, ScoredToken
from chat.types import Ask, Lark, Message
from tests.fakes import run_on_virtual_clock

REQUEST = "Write about rain. It must have at least four words."


class ScriptedModel:
    """Lists constraints by the sentence, and writes texts in their order. A fork follows the same script.

    Args:
        listed: what it lists for sentences; `none` for others.
        texts: a text that takes a number of seconds is a pair. An empty one is cut off.
        surely: how likely `none` is.
    """

    def __init__(
        self, listed: Mapping[str, str], texts: Sequence[str | tuple[str, float]], surely: float = 0.9
    ) -> None:
        self.listed, self.texts, self.surely = listed, texts, surely
        self.asks: list[Ask] = []
        self.given_up = 0

    def fork(self) -> Any:
        return self

    async def reply(self, ask: Ask) -> AsyncIterator[Progress]:
        if ask.max_tokens == 1:
            yield Progress("", tokens=1, step=1, finished="length", prompt_tokens=900)
        elif ask.top_log_probabilities is not None or ask.grammar == SOME_CONSTRAINTS:
            line = self.listed.get(ask.messages[-1].content, "none")
            if ask.grammar == SOME_CONSTRAINTS:
                line = self.listed.get(ask.messages[-1].content, 'contains "sun"')
            elif self.surely < 0.8:
                line = "none"
            score = ScoredToken("x", b"x", math.log(self.surely), 1, ())
            yield Progress(line, tokens=5, step=5, finished="stop", prompt_tokens=950, scores=(score,))
        else:
            self.asks.append(ask)
            given = self.texts[ask.variant]
            text, seconds = given if isinstance(given, tuple) else (given, 0.0)
            try:
                await asyncio.sleep(seconds)
                finished = "stop" if text else "length"
                yield Progress(text, tokens=10, step=2, finished=finished, prompt_tokens=30)  # type: ignore[arg-type]
            except BaseException:
                self.given_up += 1
                raise


def write(model: ScriptedModel, effort: ReasoningEffort, message: str = REQUEST) -> tuple[str, Cost]:
    cost = Cost()

    async def work() -> str:
        ask = Ask([Message("user", message)], max_tokens=99)
        return await ConstrainedText(model, ask, effort, SharedExamples(model), cost).write()  # type: ignore[arg-type]

    return run_on_virtual_clock(work), cost


FOUR_WORDS = {"It must have at least four words.": "words at least 4"}


def test_a_text_that_meets_its_constraints_is_written_once() -> None:
    model = ScriptedModel(FOUR_WORDS, ["Rain falls on roofs."])
    text, cost = write(model, "high")
    assert text == "Rain falls on roofs." and len(model.asks) == 1
    assert model.asks[0].grammar is None and model.asks[0].max_tokens == 99
    assert cost.tokens == 1 + 2 * 5 + 1 + 10 and cost.prompt_tokens == 950


def test_a_message_without_constraints_is_left_alone() -> None:
    model = ScriptedModel({}, [])
    assert write(model, "high")[0] == "" and not model.asks


def test_the_model_is_told_what_is_wrong_and_writes_again() -> None:
    model = ScriptedModel(FOUR_WORDS, ["Rain falls.", "It rains on us."])
    assert write(model, "low")[0] == "It rains on us."
    assert [message.role for message in model.asks[1].messages] == ["user", "assistant", "user"]
    assert "It has 2 words; at least 4 are asked for." in model.asks[1].messages[-1].content


def test_the_version_that_meets_the_most_is_taken_and_the_earliest_of_equals() -> None:
    listed = {"Use four words or more and say rain.": 'words at least 4\ncontains "rain"'}
    model = ScriptedModel(listed, ["Wet.", "It is so very wet.", "Rain.", "Rain!"])
    assert write(model, "medium", "Use four words or more and say rain.")[0] == "It is so very wet."
    assert len(model.asks) == 4 and [len(ask.messages) for ask in model.asks] == [1, 3, 3, 1]


def test_versions_that_are_no_longer_needed_are_given_up() -> None:
    texts = ["Wet.", ("Rain falls on me.", 1.0), ("Too late to help.", 50.0), ("The same is true.", 50.0)]
    model = ScriptedModel(FOUR_WORDS, texts)
    assert write(model, "medium")[0] == "Rain falls on me." and model.given_up == 2


def test_a_sentence_that_the_model_hardly_calls_free_is_asked_again() -> None:
    model = ScriptedModel(FOUR_WORDS, ["Rain falls on roofs."], surely=0.6)
    assert write(model, "low")[0] == "Rain falls on roofs."


def test_what_a_grammar_can_hold_is_held_while_the_text_is_written() -> None:
    sentence = "Do not use any comma in it."
    model = ScriptedModel({sentence: 'avoids ","'}, ["Rain falls on roofs."])
    write(model, "low", sentence)
    assert isinstance(model.asks[0].grammar, Lark) and "[^\\,]*" in model.asks[0].grammar.source


def test_words_that_the_message_does_not_have_are_no_constraint() -> None:
    sentence = "Use any words that you like."
    model = ScriptedModel({sentence: 'contains "umbrella"'}, [])
    assert write(model, "low", sentence)[0] == ""


def test_texts_that_are_cut_off_are_not_taken() -> None:
    model = ScriptedModel(FOUR_WORDS, ["", "", "Rain falls on roofs.", ""])
    assert write(model, "medium")[0] == "Rain falls on roofs."
    assert write(ScriptedModel(FOUR_WORDS, ["", ""]), "low")[0] == ""
