"""Requests that cannot be fulfilled get a response that begins to decline, on tiny random weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from chat.types import Ask, Handed, Message, Opening, Tool
from model.decode.call_decision import CallThresholds
from model.decode.conditional_opening import Beginning, ConditionalOpening
from model.decode.constraint import Constraint
from model.decode.draft import paths
from model.decode.draft_length import DraftLengthController
from model.decode.grammar import Choice
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import LoadedModel
from model.engine.request_classifier import (
    KINDS,
    VERDICTS,
    RequestClassifier,
    classified_states,
    instructions_checksum,
    refusal_odds,
)
from model.engine.request_opening import OPENINGS, _Opening
from model.nn.forward_batch import text_input
from tests.model.dialogues import HELLO, SYSTEM, collect_progress, committed_text

OTHER = Message("user", "the capital of Paris")
TOOL = Tool("hang_up")
UNABLE, ACTION = (KINDS.index(kind) - 1 for kind in ("unable", "action"))


def state_of(model: LoadedModel, question: Message) -> Tensor:
    ids, received = model.template.encode([SYSTEM, question]), []
    model.decoder.run([replace(text_input(model.decoder.new_cache(), ids, 1), on_features=received.append)])
    return classified_states(received[0][0], model.decoder.config.hidden)


def telling_apart(model: LoadedModel, kind: int = UNABLE) -> RequestClassifier:
    """HELLO is answerable, and OTHER is not."""
    answerable, unable = state_of(model, HELLO), state_of(model, OTHER)
    weight = torch.zeros(len(KINDS) - 1, len(answerable))
    weight[kind] = unable - answerable
    bias = -(weight @ (answerable + unable) / 2)
    bias[[other for other in range(len(bias)) if other != kind]] = -1e3
    return classifier(weight, bias)


def classifier(weight: Tensor, bias: Tensor) -> RequestClassifier:
    checksum = instructions_checksum(SYSTEM.content)
    return RequestClassifier(weight, bias, torch.zeros(len(VERDICTS)), checksum, "base", {})


@pytest.fixture(scope="module")
def engines(model: LoadedModel) -> Iterator[tuple[Engine, Engine]]:
    """With the classifier and without one. Both always draft."""
    opened = []
    for loaded in (replace(model, request_classifier=telling_apart(model)), model):
        opened.append(Engine(lambda loaded=loaded: loaded))
        opened[-1].draft_length = DraftLengthController({64: 1.0, 100: 1.0}, 3, [0.9] * 3)
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
        ([SYSTEM, OTHER], {"tools": [TOOL]}),
    ],
    ids=[
        "instructions",
        "no instructions",
        "no request",
        "a grammar",
        "a required call",
        "a tool",
    ],
)
async def test_other_responses_are_left_alone(
    engines: tuple[Engine, Engine], messages: list[Message], options: dict[str, Any]
) -> None:
    engine, without = engines
    assert await respond(engine, *messages, **options) == await respond(without, *messages, **options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tools": [TOOL]},
        {"grammar": Opening(("hello to you",))},
        {"grammar": Opening(("hello to you", "Paris is the capital"))},
    ],
    ids=["alone", "functions of others", "an opening", "a choice of openings"],
)
@pytest.mark.parametrize("instructions", [SYSTEM, replace(SYSTEM, content="hello to you")])
async def test_a_task_ends_the_response_at_once_if_that_is_asked_for(
    model: LoadedModel, instructions: Message, options: dict[str, Any]
) -> None:
    """Whatever the instructions are, and the functions that are declared."""
    state = {message: state_of(model, message) for message in (HELLO, OTHER)}
    weight = torch.zeros(len(KINDS) - 1, len(state[HELLO]))
    bias = torch.full((len(KINDS) - 1,), -1e3)
    bias[ACTION] = 9.0
    never = CallThresholds(call=1e4)
    engine = Engine(lambda: replace(model, request_classifier=classifier(weight, bias), call_thresholds=never))
    conversation = Conversation(engine)
    progress = await collect_progress(conversation, instructions, OTHER, task="maybe", max_tokens=40, **options)
    assert [step.finished for step in progress] == ["task"] and not committed_text(progress)
    progress = await collect_progress(conversation, instructions, OTHER, max_tokens=12, **options)
    assert progress[-1].finished != "task" and committed_text(progress)
    engine.close()


@pytest.mark.parametrize("kind", get_args(Handed))
async def test_a_response_ends_at_once_at_requests_that_others_answer(model: LoadedModel, kind: Handed) -> None:
    engine = Engine(lambda: replace(model, request_classifier=telling_apart(model, KINDS.index(kind) - 1)))
    for verdicts, said, ends in (
        (frozenset({kind}), OTHER, True), (frozenset(), OTHER, False), (frozenset({kind}), HELLO, False),
    ):  # fmt: skip
        progress = await collect_progress(Conversation(engine), SYSTEM, said, verdicts=verdicts, max_tokens=20)
        assert (progress[-1].finished == kind) is ends and bool(committed_text(progress)) is not ends
    elsewhere = replace(SYSTEM, content="hello to you")
    progress = await collect_progress(Conversation(engine), elsewhere, OTHER, verdicts=frozenset({kind}), max_tokens=20)
    assert committed_text(progress), "it was trained with other instructions"
    engine.close()


@pytest.mark.parametrize(
    "grammar",
    [Opening(("hello to you",)), Opening(("hello to you", "Paris is the capital")), Choice(("hello", "Paris"))],
    ids=["an opening", "a choice of openings", "a choice"],
)
async def test_others_answer_a_request_although_a_grammar_describes_the_response(
    model: LoadedModel, grammar: Opening | Choice
) -> None:
    """The request is judged by the prompt's last row, before anything that the grammar forces."""
    engine = Engine(lambda: replace(model, request_classifier=telling_apart(model, KINDS.index("danger") - 1)))
    options: dict[str, Any] = {"grammar": grammar, "verdicts": frozenset({"danger"}), "max_tokens": 20}
    progress = await collect_progress(Conversation(engine), SYSTEM, OTHER, **options)
    assert [step.finished for step in progress] == ["danger"] and not committed_text(progress)
    progress = await collect_progress(Conversation(engine), SYSTEM, HELLO, **options)
    assert progress[-1].finished != "danger" and committed_text(progress).startswith(grammar.options)
    engine.close()


def test_the_models_own_refusals_are_avoided_where_there_is_nothing_to_refuse(model: LoadedModel) -> None:
    knowing, state = telling_apart(model), state_of(model, HELLO)
    features = torch.cat([torch.zeros_like(state), state, torch.zeros_like(state)])
    bias = knowing.bias.index_fill(0, torch.tensor([KINDS.index("unsafe") - 1]), 1.5)
    harmful = replace(knowing, bias=bias, thresholds=torch.full((len(VERDICTS),), 2.0))
    asked = Ask([SYSTEM, HELLO], spoken=True)
    for classifier, ask, avoids in (
        (knowing, asked, True), (knowing, replace(asked, spoken=False), False), (harmful, asked, False),
    ):  # fmt: skip
        beginning = _Opening(model, classifier, ask, (), opens=True).choose(features)
        assert not beginning.tokens and bool(beginning.avoided) is avoids
    assert beginning.avoided == () and refusal_odds(harmful.scores_of(features)) == pytest.approx(1.5)


def test_an_avoided_beginning_ends_drafts_and_masks_each_row() -> None:
    constraint = ConditionalOpening(Constraint(), lambda features: Beginning(avoided=[(1, 2, 3), (4, 5)]))
    constraint.observe(torch.zeros(1))
    logits = torch.zeros(3, 8)
    constraint.restrict(logits, paths([1, 2]))
    assert constraint.active and logits.isinf().nonzero().tolist() == [[2, 3]]
    assert constraint.allowed_length([1, 2, 3, 4]) == 2 and constraint.allowed_length([1, 2, 4]) == 3
    assert constraint.commit([1]) == ()
    logits = torch.zeros(2, 8)
    constraint.restrict(logits, paths([2]))
    assert logits.isinf().nonzero().tolist() == [[1, 3]] and constraint.allowed_length([2, 3]) == 1
    constraint.commit([2, 6])
    assert not constraint.active


async def test_what_only_looks_like_a_task_is_not_declined(model: LoadedModel) -> None:
    engine = Engine(lambda: replace(model, request_classifier=telling_apart(model, ACTION)))
    for task, begins in (("", True), ("no", False)):
        [*_, last] = progress = await collect_progress(Conversation(engine), SYSTEM, OTHER, task=task, max_tokens=40)
        assert last.finished != "task" and committed_text(progress).startswith(OPENINGS["unable"]) is begins
    engine.close()


async def test_without_tools_an_action_is_something_that_cannot_be_done(model: LoadedModel) -> None:
    engine = Engine(lambda: replace(model, request_classifier=telling_apart(model, ACTION)))
    assert (await respond(engine, SYSTEM, OTHER)).startswith(OPENINGS["unable"])
    assert not (await respond(engine, SYSTEM, HELLO)).startswith(OPENINGS["unable"])
    engine.close()


@pytest.mark.parametrize("calls", [True, False])
async def test_a_call_of_a_function_on_offer_comes_first(model: LoadedModel, calls: bool) -> None:
    """Where the model decides against a call, the task ends the response."""
    weight, bias = torch.zeros(len(KINDS) - 1, model.decoder.config.hidden), torch.zeros(len(KINDS) - 1)
    bias[ACTION] = 9.0
    thresholds = CallThresholds(call=-1e4 if calls else 1e4)
    engine = Engine(lambda: replace(model, request_classifier=classifier(weight, bias), call_thresholds=thresholds))
    conversation = Conversation(engine)
    progress = await collect_progress(conversation, SYSTEM, HELLO, tools=[TOOL], task="maybe", max_tokens=40)
    engine.close()
    assert any(step.tool_calls for step in progress) == calls
    assert (progress[-1].finished == "task") != calls
