"""Decisions: the prompt, the calibration, and their form over HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from chat.types import Message
from model.engine.decision import Decider, OptionScores
from server.chat_completions.decision import DecisionMaker, DecisionRequest
from tests.real_time import HANG_S

CHOICE = {"type": "choice", "choices": ["billing", "support"], "instructions": "You route calls."}


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> list[list[Message]]:
    """The prompts that were scored. The model prefers the first option, less so after "router"."""
    scored: list[list[Message]] = []

    async def score(self: Decider, messages: list[Message], options: list[str]) -> OptionScores:
        scored.append(list(messages))
        first = 0.6 if "router" in messages[-1].content else 0.9
        return OptionScores((first, *[(1 - first) / (len(options) - 1)] * (len(options) - 1)), 9, 5)

    monkeypatch.setattr(Decider, "score", score)
    monkeypatch.setattr(Decider, "__init__", lambda self, engine, **options: None)
    return scored


async def decide(maker: DecisionMaker, text: str, **fields: Any) -> tuple[Any, float]:
    decision = await maker.decide(DecisionRequest.model_validate({**CHOICE, "input": text, **fields}))
    assert sum(decision.probabilities) == pytest.approx(1)
    return decision.value, max(decision.probabilities)


async def test_what_the_model_answers_to_anything_is_divided_out(prompts: list[list[Message]]) -> None:
    maker = DecisionMaker(None)  # type: ignore[arg-type]
    assert await decide(maker, "My router is broken.", calibrate=False) == ("billing", pytest.approx(0.6))
    value, probability = await decide(maker, "My router is broken.")
    assert value == "support" and probability == pytest.approx(0.4 / 0.12 / (0.4 / 0.12 + 0.6 / 0.88), abs=1e-6)
    value, probability = await decide(maker, "Hello.")
    assert probability == pytest.approx(0.5, abs=0.1)


async def test_the_inclination_of_a_kind_of_decisions_is_computed_once(prompts: list[list[Message]]) -> None:
    maker = DecisionMaker(None)  # type: ignore[arg-type]
    for text in ("One.", "Two.", "Three."):
        await decide(maker, text)
    assert [prompt[-1].content for prompt in prompts] == ["One.", "N/A", "", "...", "Two.", "Three."]
    await decide(maker, "Four.", choices=["billing", "sales"])
    assert len(prompts) == 10


async def test_all_that_decisions_of_a_kind_share_comes_first(prompts: list[list[Message]]) -> None:
    maker = DecisionMaker(None)  # type: ignore[arg-type]
    await decide(maker, "One.")
    (instructions, text), *_ = prompts
    assert instructions == Message(
        "system", "You route calls. Answer with one of these, and nothing else: billing; support."
    )
    assert text == Message("user", "One.")
    conversation = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello!"}]
    await decide(maker, "", input=None, messages=conversation)
    assert [message.role for message in prompts[-1]] == ["system", "user", "assistant", "user"]


async def test_a_yes_or_no_is_asked_after_the_message_and_is_not_calibrated(prompts: list[list[Message]]) -> None:
    request = DecisionRequest(type="boolean", instructions="Is it urgent?", input="Help!")
    decision = await DecisionMaker(None).decide(request)  # type: ignore[arg-type]
    ((instructions, message),) = prompts
    assert message == Message("user", 'Message: "Help!"\nQuestion: Is it urgent?')
    assert "urgent" not in instructions.content
    assert decision.value is True and decision.probabilities[0] == pytest.approx(0.9 + 0.1 / 3)


def post(address: str, **body: Any) -> httpx.Response:
    return httpx.post(f"http://{address}/v1/decide", json=body, timeout=HANG_S)


def test_each_kind_of_decision(address: str) -> None:
    yes_or_no = post(address, type="boolean", input="hello to you").json()
    assert yes_or_no["value"] in (True, False)
    choice = post(address, type="choice", choices=["Paris", "hello you", "to"], input="hello").json()
    assert choice["value"] in ("Paris", "hello you", "to")
    number = post(
        address, type="number", minimum=0, maximum=1, step=0.25, messages=[{"role": "user", "content": "hello"}]
    ).json()
    assert [entry["value"] for entry in number["probabilities"]] == [0, 0.25, 0.5, 0.75, 1]
    assert 0 <= number["mean"] <= 1
    for decision in (yes_or_no, choice, number):
        shares = [entry["probability"] for entry in decision["probabilities"]]
        assert sum(shares) == pytest.approx(1) and decision["probability"] == max(shares)
        assert decision["usage"]["completion_tokens"] == 0 < decision["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"type": "choice", "input": "x"}, "'choices'"),
        ({"type": "choice", "input": "x", "choices": ["a", " a"]}, "different"),
        ({"type": "choice", "input": "x", "choices": ["hello to you Paris " * 9, "a"]}, "tokens"),
        ({"type": "number", "input": "x", "minimum": 1}, "'maximum'"),
        ({"type": "number", "input": "x", "minimum": 3, "maximum": 1}, "above"),
        ({"type": "number", "input": "x", "minimum": 0, "maximum": 1e9}, "larger 'step'"),
        ({"type": "number", "input": "x", "minimum": 0, "maximum": 1, "step": "inf"}, "finite number"),
        ({"type": "boolean"}, "either 'input' or 'messages'"),
    ],
)
def test_bad_requests_get_a_sentence(address: str, body: dict[str, Any], words: str) -> None:
    response = post(address, **body)
    assert response.status_code == 400 and words in response.json()["error"]["message"]
