"""A text under constraints with a scripted language model: what is checked, written again and taken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from agent.reasoning.constrained_text import ConstrainedText
from agent.reasoning.constraints import read_constraints
from agent.reasoning.cost import Cost
from agent.reasoning.prompt import ReasoningEffort
from chat.progress import Progress
from chat.types import Ask, Lark, Message
from tests.fakes import run_on_virtual_clock


class ScriptedModel:
    """Writes texts in their order. A fork follows the same script.

    Args:
        texts: one that takes a number of seconds is a pair. An empty one is cut off.
    """

    def __init__(self, texts: Sequence[str | tuple[str, float]]) -> None:
        self.texts = texts
        self.asks: list[Ask] = []
        self.given_up = self.read = 0

    def fork(self) -> Any:
        return self

    async def reply(self, ask: Ask) -> AsyncIterator[Progress]:
        if ask.max_tokens == 1:
            self.read += 1
            yield Progress("x", tokens=1, step=1, finished="length", prompt_tokens=20)
            return
        self.asks.append(ask)
        given = self.texts[ask.variant]
        text, seconds = given if isinstance(given, tuple) else (given, 0.0)
        length = 20 if len(ask.messages) == 1 else 70
        try:
            yield Progress(f" {text[:3]}", tokens=4, step=1, prompt_tokens=length)
            await asyncio.sleep(seconds)
            finished = "stop" if text else "length"
            yield Progress(text[3:], tokens=10, step=2, finished=finished, prompt_tokens=length)  # type: ignore[arg-type]
        except BaseException:
            self.given_up += 1
            raise


def write(model: ScriptedModel, effort: ReasoningEffort, lines: str = "words at least 4") -> tuple[str, Cost]:
    cost = Cost()

    async def work() -> Progress | None:
        ask = Ask([Message("user", "Write about rain.")], max_tokens=99)
        return await ConstrainedText(model, ask, read_constraints(lines), effort, cost).write()  # type: ignore[arg-type]

    end = run_on_virtual_clock(work)
    assert end is None or (end.finished, end.tokens, end.prompt_tokens) == ("stop", 10, 20)
    return end.committed if end else "", cost


def test_a_text_that_meets_its_constraints_is_written_once() -> None:
    model = ScriptedModel(["Rain falls on roofs."])
    text, cost = write(model, "high")
    assert text == "Rain falls on roofs." and len(model.asks) == 1
    assert model.asks[0].grammar is None and model.asks[0].max_tokens == 99
    assert (cost.tokens, cost.steps) == (1 + 10, 1 + 2)


def test_the_model_is_told_what_is_wrong_and_writes_again() -> None:
    model = ScriptedModel(["Rain falls.", "It rains on us."])
    assert write(model, "low")[0] == "It rains on us."
    assert [message.role for message in model.asks[1].messages] == ["user", "assistant", "user"]
    assert "It has 2 words; at least 4 are asked for." in model.asks[1].messages[-1].content


def test_the_version_that_meets_the_most_is_taken_and_the_earliest_of_equals() -> None:
    model = ScriptedModel(["Wet.", "It is so very wet.", "Rain.", "Rain!"])
    assert write(model, "medium", 'words at least 4\ncontains "rain"')[0] == "It is so very wet."
    assert len(model.asks) == 4 and [len(ask.messages) for ask in model.asks] == [1, 3, 3, 1]
    assert model.read == 2  # all versions share the prompts


def test_a_round_that_improves_nothing_is_the_last_one() -> None:
    model = ScriptedModel(["Wet."] * 11)
    assert write(model, "high")[0] == "Wet." and len(model.asks) == 1 + 5


def test_versions_that_are_no_longer_needed_are_given_up() -> None:
    texts = ["Wet.", ("Rain falls on me.", 1.0), ("Too late to help.", 50.0), ("The same is true.", 50.0)]
    model = ScriptedModel(texts)
    assert write(model, "medium")[0] == "Rain falls on me." and model.given_up == 2


def test_what_a_grammar_can_hold_is_held_while_the_text_is_written() -> None:
    model = ScriptedModel(["Rain falls on roofs."])
    write(model, "low", 'avoids ","')
    assert isinstance(model.asks[0].grammar, Lark) and "[^\\,]*" in model.asks[0].grammar.source


def test_texts_that_are_cut_off_are_not_taken() -> None:
    model = ScriptedModel(["Wet.", "", "Rain falls on roofs.", ""])
    assert write(model, "medium")[0] == "Rain falls on roofs."
    assert write(ScriptedModel(["", "", "Rain falls on roofs.", ""]), "medium")[0] == "Rain falls on roofs."
    model = ScriptedModel([""] * 11)
    assert write(model, "high")[0] == "" and len(model.asks) == 1 + 5
