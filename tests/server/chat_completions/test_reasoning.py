"""What is worked out reaches the answer, is counted, and leaves requests alone that cannot use it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from openai import OpenAI

from agent.reasoning import prompt, reasoner
from agent.reasoning.constrained_text import ConstrainedText
from agent.reasoning.constraint_reader import ConstraintReader
from agent.reasoning.constraints import Constraint
from agent.reasoning.cost import Cost
from agent.reasoning.reasoner import Conclusion, Sample
from chat.progress import Progress
from chat.types import Lark
from server.chat_completions.generation import TokenUsage, Update
from server.chat_completions.reasoning import with_answer

QUESTION: list[Any] = [{"role": "user", "content": "hello to you"}]
ANSWER = "4711.5"


@pytest.fixture
def worked_out(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Everything is a number and comes to the same answer. Holds the efforts."""
    efforts: list[Any] = []

    async def conclude(self: reasoner.Reasoner) -> Conclusion:
        efforts.append(self._effort)
        self.cost = Cost(prompt_tokens=30, tokens=20, steps=10)
        return Conclusion(ANSWER, Sample("program", ANSWER, f"answer = {ANSWER}"), 1, 1)

    monkeypatch.setattr(reasoner.Reasoner, "conclude", conclude)
    return efforts


async def _text(parts: list[str], answer: str, finish: str = "stop") -> str:
    async def updates() -> AsyncIterator[Update]:
        for part in parts:
            yield Update(part, "", (), finish if part is parts[-1] else None, TokenUsage())

    return "".join([update.text async for update in with_answer(updates(), answer)])


async def test_a_text_that_has_the_result_stays_as_it_is() -> None:
    assert await _text(["It is 1,", "250 in all."], "1250") == "It is 1,250 in all."
    assert await _text(["YES", ", it is."], "yes") == "YES, it is."
    assert await _text(["It is Paris, France."], "paris, france") == "It is Paris, France."


async def test_a_text_without_the_result_is_completed() -> None:
    assert await _text(["It is ", "12."], "1250") == "It is 12.\n\nThe answer is 1250."


async def test_a_part_of_a_longer_number_is_not_the_result() -> None:
    assert await _text(["It is 712."], "7") == "It is 712.\n\nThe answer is 7."
    assert await _text(["It is $7."], "7") == "It is $7."
    for number in ("3.5", "3:30", "2.3", "1,003"):
        assert (await _text([f"It is {number}."], "3")).endswith("The answer is 3.")
    assert await _text(["It is _3_."], "3") == "It is _3_."


async def test_a_text_that_was_cut_off_is_not_completed() -> None:
    assert await _text(["It is ", "12"], "1250", "length") == "It is 12"


@pytest.mark.parametrize("kind", ["number", "choice"])
def test_samples_follow_their_grammars_on_the_engine(
    client: OpenAI, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """With random weights the samples mean nothing, but all of them are generated, in one batch."""
    monkeypatch.setattr(reasoner, "KINDS", Lark(f'start: "{kind}"'))
    for examples in ("EXAMPLES", "CHOICE_EXAMPLES"):
        monkeypatch.setattr(prompt, examples, "the capital")  # the others do not fit into the context
    monkeypatch.setattr(reasoner, "_MAX_TOKENS", {"program": 40, "steps": 40})  # random texts hardly ever end
    samples: list[Sample] = []
    make = reasoner.Reasoner._sample

    async def sample(self: reasoner.Reasoner, *options: Any) -> Sample:
        samples.append(await make(self, *options))
        return samples[-1]

    monkeypatch.setattr(reasoner.Reasoner, "_sample", sample)
    answered = client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=4, reasoning_effort="high")
    assert answered.usage is not None and answered.usage.completion_tokens_details is not None
    assert (answered.usage.completion_tokens_details.reasoning_tokens or 0) > len(samples)
    assert {sample.method for sample in samples} == {"program", "steps"}
    for each in samples:
        assert not each.answer or each.method == "steps" or "answer = " in each.text


def test_what_does_not_fit_after_the_examples_is_answered_without_an_effort(client: OpenAI) -> None:
    options: list[dict[str, Any]] = [{}, {"reasoning_effort": "high"}]
    plain, tried = (
        client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=4, **each) for each in options
    )
    assert tried.choices[0].message.content == plain.choices[0].message.content


def test_chat_completions_answer_with_what_was_worked_out(client: OpenAI, worked_out: list[Any]) -> None:
    completion = client.chat.completions.create(
        model="tiny", messages=QUESTION, max_tokens=8, reasoning_effort="xhigh", n=2, seed=1, temperature=1
    )
    assert worked_out == ["high"] and completion.usage is not None
    details = completion.usage.completion_tokens_details
    assert details is not None and details.reasoning_tokens == 20
    assert 20 < completion.usage.completion_tokens <= 20 + 2 * 8


def test_nothing_is_added_after_a_stop_sequence(client: OpenAI, worked_out: list[Any]) -> None:
    options: Any = {"model": "tiny", "messages": QUESTION, "max_tokens": 60, "reasoning_effort": "high"}
    text = client.chat.completions.create(**options).choices[0].message.content
    stop = text[3:5]
    stopped = client.chat.completions.create(**options, stop=stop).choices[0]
    assert worked_out and stopped.finish_reason == "stop" and stopped.message.content == text.partition(stop)[0]


def test_responses_answer_with_what_was_worked_out(client: OpenAI, worked_out: list[Any]) -> None:
    response = client.responses.create(
        model="tiny", input="hello to you", max_output_tokens=8, reasoning={"effort": "medium"}
    )
    assert worked_out == ["medium"] and response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens == 20


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every message asks for a text, whose constraints this one meets. Holds the efforts."""
    efforts: list[str] = []

    async def write(self: ConstrainedText) -> Progress:
        efforts.append(self._effort)
        self._cost.tokens += 30
        return Progress(TEXT, tokens=12, step=9, finished="stop", prompt_tokens=5)

    async def read(self: ConstraintReader, message: str, cost: Cost) -> list[Constraint]:
        return [Constraint("lower case")]

    monkeypatch.setattr(reasoner, "KINDS", Lark('start: "text"'))
    monkeypatch.setattr(ConstraintReader, "read", read)
    monkeypatch.setattr(ConstrainedText, "write", write)
    return efforts


TEXT = 'He said: "It\'s 100 %\\0 wet."\n\nÜber 😀.'


def test_a_text_that_meets_its_constraints_is_the_answer(client: OpenAI, written: list[str]) -> None:
    answered = client.chat.completions.create(model="tiny", messages=QUESTION, reasoning_effort="medium")
    assert answered.choices[0].message.content == TEXT and answered.choices[0].finish_reason == "stop"
    usage = answered.usage
    assert usage is not None and usage.completion_tokens_details is not None and usage.prompt_tokens == 5
    assert usage.completion_tokens - (usage.completion_tokens_details.reasoning_tokens or 0) == 12
    streamed = client.chat.completions.create(model="tiny", messages=QUESTION, reasoning_effort="medium", stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == TEXT
    response = client.responses.create(model="tiny", input="hello to you", reasoning={"effort": "high"})
    assert response.output_text == TEXT and written == ["medium", "medium", "high"]


@pytest.mark.parametrize(
    "options", [{"n": 2}, {"stop": "a"}, {"logprobs": True}, {"response_format": {"type": "json_object"}}]
)
def test_no_text_is_written_ahead_where_it_would_not_do(
    client: OpenAI, written: list[str], options: dict[str, Any]
) -> None:
    client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=4, reasoning_effort="medium", **options)
    assert not written


@pytest.mark.parametrize("effort", ["none", "minimal", None])
def test_without_an_effort_nothing_is_worked_out(client: OpenAI, worked_out: list[Any], effort: Any) -> None:
    options = {} if effort is None else {"reasoning_effort": effort}
    client.chat.completions.create(model="tiny", messages=QUESTION, max_tokens=4, **options)
    assert not worked_out


def test_requests_with_functions_are_answered_as_they_are(client: OpenAI, worked_out: list[Any]) -> None:
    function: Any = {"type": "function", "function": {"name": "pay", "parameters": {"type": "object"}}}
    client.chat.completions.create(
        model="tiny", messages=QUESTION, max_tokens=4, reasoning_effort="high", tools=[function]
    )
    assert not worked_out
