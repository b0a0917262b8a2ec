"""Spoken conversations with a bigger model elsewhere, on a virtual clock: what leaves the machine and when, turns of
several steps, and what is counted."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from agent.tools.protocol import ToolOutput, ToolTraits
from server.access.admission import Admission
from server.access.keys import ApiKey
from server.access.usage import UsageLog
from server.context import ServerContext
from server.observability.metrics import Metrics
from server.observability.observers import log_turn
from server.observability.turn_log import TurnRecord
from server.realtime.conversation import RealtimeConversation
from tests.agent.remote.scripted_server import ScriptedServer, calls, remote_llm, text
from tests.fakes import FakeLanguageModel, fake_speech_models, run_on_virtual_clock
from tests.voice.fake_tools import FakeTools
from tests.voice.session_harness import SessionHarness, response_texts, run_session
from voice import events
from voice.history import FunctionCall, FunctionCallOutput

LOCAL = "The capital of France is Paris."
REQUEST = "Look in Oslo, and then write that down."
STEPS = [calls(("look", '{"city": "Oslo"}')), calls(("write", '{"text": "14"}')), text("I wrote", " down 14.")]
KNOWN = {"look": ToolTraits(read_only=True), "write": ToolTraits(holding_phrase="Let me write that down.")}


def converse(
    server: ScriptedServer,
    scenario: Callable[[SessionHarness], Coroutine[Any, Any, None]],
    tools: FakeTools | None = None,
    **settings: Any,
) -> SessionHarness:
    return run_session(
        scenario,
        tools.settings if tools else None,
        tools,
        remote_llm(server, **settings),
    )


def test_nothing_leaves_before_the_turn_is_over() -> None:
    """The user pauses twice. Each pause starts a speculative response, and the words so far are read ahead."""
    server = ScriptedServer([text("Paris,", " I think.")])

    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.completion = 0.1  # they may well go on
        for _ in range(3):
            await harness.hear(1.0, 0.5)
            await harness.hear(0.4, 0.0)
            assert not server.bodies
        await harness.hear(4.0, 0.0)

    harness = converse(server, scenario)
    (stopped,) = harness.events_of(events.SpeechStopped)
    (done,) = harness.events_of(events.ResponseDone)
    assert stopped is not None and done.metrics.speculations == 3
    assert [time >= harness.time_of(events.SpeechStopped) for time in server.times] == [True]
    assert harness.time_of(events.WordsSent) == pytest.approx(server.times[0])
    assert response_texts(harness) == ["Paris, I think."]
    assert harness.language_model.prepared and not harness.language_model.prompts


def test_the_turn_does_not_wait_for_an_answer_that_cannot_begin_before_it_ends() -> None:
    def end_of_turn(scope: str) -> float:
        async def scenario(harness: SessionHarness) -> None:
            harness.language_model.seconds_per_word = 0.0
            await harness.ask_question(4.0)

        harness = converse(ScriptedServer([text("Paris.")]), scenario, scope=scope)
        return harness.time_of(events.SpeechStopped)

    assert end_of_turn("all") == pytest.approx(end_of_turn("hard"), abs=0.05)


def test_a_slow_server_costs_its_time_limit_and_the_local_answer_is_said_once() -> None:
    server = ScriptedServer([[100.0]])
    harness = converse(server, lambda harness: harness.ask_question(6.0), first_token_s=1.0)
    assert response_texts(harness) == [LOCAL]
    (done,) = harness.events_of(events.ResponseDone)
    assert [request.status for request in done.metrics.remote] == ["slow"]
    assert harness.time_of(events.ResponseAudio) - server.times[0] < 1.2


def test_an_interruption_ends_the_request_and_its_words_are_counted() -> None:
    server = ScriptedServer([text(*["word "] * 400, pause=0.1), text("Paris.")])

    async def scenario(harness: SessionHarness) -> None:
        await harness.ask_question(4.0)
        assert len(server.bodies) == 1
        await harness.ask_question(4.0)

    harness = converse(server, scenario)
    first, second = harness.events_of(events.ResponseDone)
    assert (first.status, second.status) == ("cancelled", "completed")
    assert server.closed_early == 1
    assert first.metrics.remote[0].status == "running"
    assert first.metrics.remote[0].output_tokens > 5
    heard = server.bodies[1]["messages"][-2]
    assert heard["role"] == "assistant" and heard["content"].startswith("word") and len(heard["content"]) < 400


def test_a_turn_takes_several_steps() -> None:
    server, tools = ScriptedServer(STEPS), FakeTools(KNOWN)

    async def scenario(harness: SessionHarness) -> None:
        harness.recognizer.text = REQUEST
        await harness.ask_question(6.0)

    harness = converse(server, scenario, tools, scope="hard")
    assert tools.started == [("look", '{"city": "Oslo"}'), ("write", '{"text": "14"}')]
    assert response_texts(harness) == ["I wrote down 14."]
    roles = [[message["role"] for message in body["messages"]] for body in server.bodies]
    assert roles[2] == ["system", "user", "assistant", "tool", "assistant", "tool"]
    assert all(body["messages"][1]["content"] == REQUEST for body in server.bodies)
    ids = [message.get("tool_call_id") for message in server.bodies[2]["messages"]]
    made = [call["id"] for message in server.bodies[2]["messages"] for call in message.get("tool_calls", ())]
    assert made == [one for one in ids if one]
    (done,) = harness.events_of(events.ResponseDone)
    assert [(step.name, step.status) for step in done.metrics.tools] == [("look", "returned"), ("write", "returned")]
    assert [request.reason for request in done.metrics.remote] == ["several steps"] * 3
    kinds = [type(item) for item in harness.session.history.items[1:-1]]
    assert kinds == [FunctionCall, FunctionCallOutput] * 2
    assert not harness.language_model.prompts


def test_the_bigger_model_goes_on_where_a_tool_brings_its_own_words() -> None:
    server, tools = ScriptedServer(STEPS), FakeTools(KNOWN, output=ToolOutput("14 degrees", "It is 14 degrees."))
    harness = converse(server, lambda harness: harness.ask_question(6.0), tools)
    assert len(tools.started) == 2
    assert response_texts(harness) == ["I wrote down 14."]


def test_slow_steps_are_bridged_and_reported() -> None:
    server, tools = ScriptedServer(STEPS), FakeTools(KNOWN, seconds=2.0)

    async def scenario(harness: SessionHarness) -> None:
        harness.recognizer.text = REQUEST
        await harness.ask_question(12.0)

    harness = converse(server, scenario, tools)
    assert response_texts(harness) == ["One moment, please. Let me write that down. I wrote down 14."]


def test_the_steps_of_a_turn_are_bounded() -> None:
    endless = [calls(("look", f'{{"city": "{n}"}}')) for n in range(20)]
    server, tools = ScriptedServer(endless), FakeTools(KNOWN)
    harness = converse(server, lambda harness: harness.ask_question(6.0), tools)
    assert (len(server.bodies), len(tools.started)) == (6, 5)
    assert "tools" not in server.bodies[-1] and all("tools" in body for body in server.bodies[:-1])
    assert response_texts(harness) == [LOCAL]  # it calls although it may not, so the local model answers


def test_a_call_that_repeats_itself_is_not_made_twice() -> None:
    server, tools = ScriptedServer([STEPS[0], STEPS[0], text("It is 14.")]), FakeTools(KNOWN)
    harness = converse(server, lambda harness: harness.ask_question(6.0), tools)
    assert len(tools.started) == 1
    assert "already made" in server.bodies[2]["messages"][-1]["content"]
    assert response_texts(harness) == ["It is 14."]


def test_a_consequential_call_of_the_bigger_model_asks_first() -> None:
    server = ScriptedServer([calls(("pay", "{}")), text("Paid.")])
    tools = FakeTools({"pay": ToolTraits(consequential=True)})

    async def scenario(harness: SessionHarness) -> None:
        await harness.ask_question(5.0)
        assert not tools.started
        harness.recognizer.text = "Yes, please."
        await harness.ask_question(5.0)

    harness = converse(server, scenario, tools)
    assert response_texts(harness) == ["Shall I pay?", "Paid."]
    assert tools.started == [("pay", "{}")]


def test_the_local_model_finishes_a_turn_that_the_other_began() -> None:
    server, tools = ScriptedServer([STEPS[0], 500]), FakeTools(KNOWN, output=ToolOutput("14 degrees"))
    harness = converse(server, lambda harness: harness.ask_question(5.0), tools)
    assert response_texts(harness) == [LOCAL]
    (prompt,) = harness.language_model.prompts
    assert [message.role for message in prompt[-2:]] == ["assistant", "tool"]
    (done,) = harness.events_of(events.ResponseDone)
    assert [request.status for request in done.metrics.remote] == ["answered", "failed"]


def test_clients_are_told_and_usage_is_counted_by_key() -> None:
    server, received = ScriptedServer([text("Paris.", usage=(100, 3)), 500]), list[dict[str, Any]]()
    turns = list[TurnRecord]()

    async def run() -> UsageLog:
        context = ServerContext(
            FakeLanguageModel, fake_speech_models(), "tiny", Admission(), remote_llm=remote_llm(server)
        )
        context.observers.record_turn = turns.append  # type: ignore[method-assign]
        slot = context.admission.reserve("realtime", ApiKey("kitchen"))
        send = lambda event: received.append(json.loads(event.model_dump_json()))  # noqa: E731
        conversation = RealtimeConversation(context, slot, send)
        session = {"type": "realtime", "output_modalities": ["text"], "include": ["rejoinder.remote", "rejoinder.turn"]}
        part = {"type": "input_text", "text": "What is the capital of France?"}
        item = {"type": "message", "role": "user", "content": [part]}
        sent = [{"type": "session.update", "session": session}]
        sent += [{"type": "conversation.item.create", "item": item}, {"type": "response.create"}] * 2
        for event in sent:
            await conversation.receive(json.dumps(event))
            await asyncio.sleep(1)
        await conversation.close()
        return context.admission.usage

    usage = run_on_virtual_clock(run).today("kitchen")
    by_type = {kind: [event for event in received if event["type"] == kind] for kind in {e["type"] for e in received}}
    told = {key: value for key, value in by_type["rejoinder.remote"][0].items() if key not in ("event_id", "type")}
    response = by_type["response.created"][0]["response"]
    assert told == {
        "response_id": response["id"],
        "host": "llm.example.org",
        "leaves_machine": True,
        "model": "big",
        "reason": "all questions",
    }
    first, second = (event["remote"] for event in by_type["rejoinder.turn"])
    assert [(one["status"], one["input_tokens"], one["output_tokens"]) for one in first] == [("answered", 100, 3)]
    assert [(one["status"], one["error"]) for one in second] == [("failed", "failed (HTTP 500)")]
    done = by_type["response.done"][0]["response"]
    assert (done["usage"]["input_tokens"], done["usage"]["output_tokens"]) == (100, 3)
    assert (usage.turns, usage.remote_requests, usage.remote_output_tokens) == (2, 2, 3)
    assert usage.remote_input_tokens == 100 + second[0]["input_tokens"] > 100
    assert (usage.input_tokens, usage.output_tokens) == (30, 6)  # the local model answered the second question
    metrics = Metrics()
    for turn in turns:
        metrics.record_turn(turn)
    for line in ('rejoinder_remote_requests_total{status="failed"} 1.0', 'rejoinder_remote_tokens_total{kind="read"}'):
        assert line in metrics.text().decode()


def test_the_log_says_where_words_went(caplog: pytest.LogCaptureFixture) -> None:
    sent = {"host": "llm.example.org", "model": "big", "status": "slow"}
    with caplog.at_level(logging.INFO, "rejoinder"):
        log_turn(TurnRecord("turn_1", 0.0, 812.0, {}, {"remote": [sent]}))
        log_turn(TurnRecord("turn_2", 0.0, 812.0, {}))
    assert [record.getMessage() for record in caplog.records] == [
        "turn turn_1 completed, 812 ms, words sent to big at llm.example.org (slow)",
        "turn turn_2 completed, 812 ms",
    ]
