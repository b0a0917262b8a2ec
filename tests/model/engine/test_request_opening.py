"""Requests that cannot be fulfilled get a response that begins to decline, on tiny random weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from chat.types import Message, OfferedTools, Tool
from model.decode.call_decision import CallThresholds
from model.decode.draft_length import DraftLengthController
from model.decode.grammar import Choice
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import LoadedModel
from model.engine.request_classifier import KINDS, RequestClassifier, classified_states, instructions_checksum
from model.engine.request_opening import OPENINGS
from model.nn.forward_batch import text_input
from tests.model.dialogues import HELLO, SYSTEM, collect_progress, committed_text

OTHER = Message("user", "the capital of Paris")
TOOL, UNKNOWN_TOOL = Tool("hang_up"), Tool("call_taxi")
UNABLE = KINDS.index("unable") - 1


def state_of(model: LoadedModel, question: Message) -> Tensor:
    ids, received = model.template.encode([SYSTEM, question]), []
    model.decoder.run([replace(text_input(model.decoder.new_cache(), ids, 1), on_features=received.append)])
    return classified_states(received[0][0], model.decoder.config.hidden)


def telling_apart(model: LoadedModel) -> RequestClassifier:
    """HELLO is answerable, and OTHER is not."""
    answerable, unable = state_of(model, HELLO), state_of(model, OTHER)
    weight = torch.zeros(len(KINDS) - 1, len(answerable))
    weight[UNABLE] = unable - answerable
    bias = -(weight @ (answerable + unable) / 2)
    bias[UNABLE + 1 :] = -1e3
    return classifier(weight, bias)


def classifier(weight: Tensor, bias: Tensor) -> RequestClassifier:
    checksum = instructions_checksum(SYSTEM.content)
    return RequestClassifier(weight, bias, 0.0, checksum, frozenset([TOOL.name]), "base", {})


@pytest.fixture(scope="module")
def engines(model: LoadedModel) -> Iterator[tuple[Engine, Engine]]:
    """With the classifier and without one. Both always draft."""
    opened = []
    for loaded in (replace(model, request_classifier=telling_apart(model)), model):
        opened.append(Engine(lambda loaded=loaded: loaded))
        opened[-1].draft_length = DraftLengthController({1: 1.0, 100: 1.0}, 3, [0.9] * 3)
    yield opened[0], opened[1]
    for engine in opened:
        engine.close()


async def respond(engine: Engine, *messages: Message, drafting: bool = True, **options: Any) -> str:
    conversation = Conversation(engine, drafting=drafting)
    return committed_text(await collect_progress(conversation, *messages, max_tokens=40, **options))


async def test_only_what_cannot_be_fulfilled_gets_an_opening(engines: tuple[Engine, Engine]) -> None:
    engine, without = engines
    text = await respond(engine, SYSTEM, OTHER)
    assert text.startswith(OPENINGS["unable"]) and len(text) > len(OPENINGS["unable"])
    assert text == await respond(engine, SYSTEM, OTHER, drafting=False)
    assert not (await respond(without, SYSTEM, OTHER)).startswith(OPENINGS["unable"])
    assert await respond(engine, SYSTEM, HELLO) == await respond(without, SYSTEM, HELLO)


async def test_the_opening_is_committed_in_the_first_step(engines: tuple[Engine, Engine]) -> None:
    conversation = Conversation(engines[0])
    progress = await collect_progress(conversation, SYSTEM, OTHER, max_tokens=12)
    assert progress[0].committed.startswith("Sorry, I can")
    again = await collect_progress(conversation, SYSTEM, OTHER, max_tokens=12)
    assert committed_text(again) == committed_text(progress), "the prompt is in the cache, but for its last token"


@pytest.mark.parametrize(
    ("messages", "options"),
    [
        ([replace(SYSTEM, content="hello to you"), OTHER], {}),
        ([OTHER], {}),
        ([SYSTEM, OTHER, Message("assistant", "hello")], {}),
        ([SYSTEM, OTHER], {"grammar": Choice(("hello to you", "Paris"))}),
        ([SYSTEM, OTHER], {"tools": [TOOL], "tool_choice": "required"}),
        ([SYSTEM, OTHER], {"tools": [TOOL, UNKNOWN_TOOL]}),
        ([SYSTEM, OTHER], {"tools": [TOOL], "offered": OfferedTools((TOOL.name,), expected=True)}),
    ],
    ids=[
        "instructions",
        "no instructions",
        "no request",
        "a grammar",
        "a required call",
        "a tool",
        "a tool that suits",
    ],
)
async def test_other_responses_are_left_alone(
    engines: tuple[Engine, Engine], messages: list[Message], options: dict[str, Any]
) -> None:
    engine, without = engines
    assert await respond(engine, *messages, **options) == await respond(without, *messages, **options)


@pytest.mark.parametrize("calls", [True, False])
async def test_a_call_of_a_tool_on_offer_comes_first(model: LoadedModel, calls: bool) -> None:
    """Where the model decides against a call, the response begins with the opening."""
    unable = classifier(torch.zeros(len(KINDS) - 1, model.decoder.config.hidden), torch.tensor([9.0, 0.0, 0.0, 0.0]))
    thresholds = CallThresholds(call=-1e4 if calls else 1e4)
    engine = Engine(lambda: replace(model, request_classifier=unable, call_thresholds=thresholds))
    progress = await collect_progress(Conversation(engine), SYSTEM, HELLO, tools=[TOOL], max_tokens=40)
    engine.close()
    assert any(step.tool_calls for step in progress) == calls
    assert committed_text(progress).startswith(OPENINGS["unable"]) != calls
