"""Conversations whose responses call tools that run here, on a virtual clock."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from agent.plan import MakeCall
from agent.tool_runs import DECLINED, INVENTED, NOT_CONFIRMED, ToolRuns
from agent.tools.protocol import ToolOutput, ToolTraits
from chat.types import Ask, Message, ToolCall
from tests.fakes import FakeProgress
from tests.voice.fake_tools import FakeTools
from tests.voice.session_harness import SessionHarness, response_texts, run_session
from voice import events
from voice.history import FunctionCall, FunctionCallOutput, Item
from voice.turn_metrics import ToolStep
from voice.unprompted import Announcement

LOOK = ("look", '{"city": "Oslo"}')
WRITES = {"write": ToolTraits(holding_phrase="Let me write that down.")}
RISKY = {"pay": ToolTraits(consequential=True)}


def kinds(harness: SessionHarness) -> list[str]:
    names = {FunctionCall: "call", FunctionCallOutput: "output"}
    return [names.get(type(item), getattr(item, "role", "")) for item in harness.session.history.items]


def converse(tools: FakeTools, call: tuple[str, str], seconds: float = 4.0) -> SessionHarness:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.calls = [call]
        await harness.ask_question(seconds)

    return run_session(scenario, tools.settings, tools)


def test_the_response_reads_what_a_tool_returned() -> None:
    tools = FakeTools()
    harness = converse(tools, LOOK)
    assert tools.started == [LOOK]
    (done,) = harness.events_of(events.ResponseDone)
    assert (done.status, done.item.text) == ("completed", "The capital of France is Paris.")
    assert done.metrics.tools == [ToolStep("look", pytest.approx(0, abs=1), "returned")]
    assert done.metrics.latency_ms() is not None
    assert kinds(harness) == ["user", "call", "output", "assistant"]
    before, after = harness.language_model.prompts
    assert [message.role for message in after[len(before) :]] == ["assistant", "tool"]
    assert after == harness.session.history.messages(harness.session.settings.instructions)[:-1]


def test_a_tool_that_brings_its_own_words_needs_no_second_step() -> None:
    tools = FakeTools(output=ToolOutput("15:40", "It is twenty to four."))
    harness = converse(tools, LOOK)
    assert len(harness.language_model.prompts) == 1
    assert response_texts(harness) == ["It is twenty to four."]


def test_only_a_read_only_tool_runs_before_the_turn_is_over() -> None:
    for known, early in ((FakeTools().known, True), (WRITES, False)):
        tools = FakeTools(known)

        async def scenario(harness: SessionHarness, tools: FakeTools = tools, early: bool = early) -> None:
            harness.language_model.calls = [(next(iter(tools.known)), "{}")]
            harness.language_model.completion = 0.1  # the user may well go on
            await harness.hear(1.0, 0.5)
            await harness.hear(0.4, 0.0)
            assert not harness.events_of(events.SpeechStopped)
            assert bool(tools.started) == early
            await harness.hear(1.0, 0.5)
            await harness.hear(4.0, 0.0)

        harness = run_session(scenario, tools.settings, tools)
        assert kinds(harness) == ["user", "call", "output", "assistant"]
        assert len(tools.started) == 1 + early  # a speculative call that was discarded leaves no trace


def test_a_call_that_takes_a_moment_is_bridged_by_the_tools_own_phrase() -> None:
    tools = FakeTools(WRITES, seconds=2.0)
    harness = converse(tools, ("write", "{}"), 6.0)
    assert response_texts(harness) == ["Let me write that down. The capital of France is Paris."]
    spoken = harness.time_of(events.ResponseAudio) - harness.time_of(events.FunctionCallDone)
    assert spoken == pytest.approx(0.4, abs=0.05)
    assert kinds(harness) == ["user", "call", "output", "assistant"]


def test_a_long_call_reports_when_it_is_done() -> None:
    tools = FakeTools(WRITES, seconds=15.0)
    harness = converse(tools, ("write", "{}"), 25.0)
    first, second = response_texts(harness)
    assert first.startswith("Let me write that down. This is taking a while.")
    assert second == "The capital of France is Paris."
    assert kinds(harness) == ["user", "call", "assistant", "output", "assistant"]
    assert harness.time_of(events.ResponseStarted, 1) - harness.time_of(events.FunctionCallDone) == pytest.approx(15)
    assert len(tools.started) == 1


def test_an_interruption_while_a_tool_runs_loses_no_result_and_runs_nothing_twice() -> None:
    tools = FakeTools(WRITES, seconds=3.0)

    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.calls = [("write", '{"b": 1, "a": 2}')]
        await harness.ask_question(0.9)
        assert len(tools.started) == 1 and not tools.finished
        harness.language_model.calls = [("write", '{"a": 2, "b": 1}')]  # the same call once more
        await harness.ask_question(8.0)

    harness = run_session(scenario, tools.settings, tools)
    assert len(tools.started) == len(tools.finished) == 1
    outputs = [item for item in harness.session.history.items if isinstance(item, FunctionCallOutput)]
    calls = [item for item in harness.session.history.items if isinstance(item, FunctionCall)]
    assert len(calls) >= 2 and {call.call_id for call in calls} == {output.call_id for output in outputs}
    assert {output.text for output in outputs} == {"14 degrees"}
    assert [done.status for done in harness.events_of(events.ResponseDone)][-1] == "completed"


def test_a_result_that_comes_after_the_next_response_is_still_reported() -> None:
    tools = FakeTools(WRITES, seconds=3.0)

    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.calls = [("write", "{}")]
        await harness.ask_question(0.9)
        harness.language_model.calls = []
        await harness.ask_question(8.0)

    harness = run_session(scenario, tools.settings, tools)
    assert kinds(harness)[-2:] == ["output", "assistant"]
    assert len(tools.started) == 1


def test_a_failure_and_a_time_limit_are_outputs(caplog: pytest.LogCaptureFixture) -> None:
    harness = converse(FakeTools(failing=True), LOOK)
    (failed,) = [record for record in caplog.records if "failed" in record.getMessage()]
    logged = logging.Formatter().format(failed)  # with its traceback, if it has one
    assert logged.startswith("look failed (RuntimeError):\n") and "in call" in logged
    assert "out of paper" not in logged.replace('RuntimeError("out of paper")', "")  # what it says may quote the user
    assert [i.text for i in harness.session.history.items if isinstance(i, FunctionCallOutput)] == [
        "The call failed: out of paper"
    ]
    (done,) = harness.events_of(events.ResponseDone)
    assert done.metrics.tools[0].status == "failed"
    slow = FakeTools({"look": ToolTraits(timeout_s=5)}, seconds=60)
    harness = converse(slow, LOOK, 10.0)
    (output,) = [i.text for i in harness.session.history.items if isinstance(i, FunctionCallOutput)]
    assert "took longer than 5 seconds" in output
    assert slow.cancelled == ["look"]


def test_the_end_of_the_conversation_cancels_calls() -> None:
    tools = FakeTools(WRITES, seconds=60.0)
    converse(tools, ("write", "{}"), 2.0)
    assert tools.cancelled == ["write"]


def test_the_same_call_is_not_made_again_in_one_turn() -> None:
    tools = FakeTools()

    async def scenario(harness: SessionHarness) -> None:
        model = harness.language_model
        model.calls = [LOOK]
        reply = model.reply

        async def call_twice(ask: Ask) -> AsyncIterator[FakeProgress]:
            if len(model.prompts) == 1:
                ask = replace(ask, tool_choice="required")
            async for progress in reply(ask):
                yield progress

        model.reply = call_twice  # type: ignore[method-assign]
        await harness.ask_question(4.0)

    harness = run_session(scenario, tools.settings, tools)
    assert len(tools.started) == 1
    assert kinds(harness) == ["user", "call", "output", "call", "output", "assistant"]


@pytest.mark.parametrize(
    ("reply", "made", "spoken"),
    [
        ("Yes, please.", True, "The capital of France is Paris."),
        ("No.", False, DECLINED),
        ("Yes, but not today.", False, "The capital of France is Paris."),
        ("What is the weather?", False, "The capital of France is Paris."),
    ],
)
def test_a_consequential_call_is_made_after_a_clear_yes_only(reply: str, made: bool, spoken: str) -> None:
    tools = FakeTools(RISKY)

    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.calls = [("pay", '{"amount": 5}')]
        await harness.ask_question(4.0)
        assert not tools.started
        harness.language_model.calls, harness.recognizer.text = [], reply
        await harness.ask_question(4.0)

    harness = run_session(scenario, tools.settings, tools)
    assert response_texts(harness) == ["Shall I pay?", spoken]
    assert tools.started == ([("pay", '{"amount": 5}')] if made else [])
    outputs = [item.text for item in harness.session.history.items if isinstance(item, FunctionCallOutput)]
    assert outputs == [NOT_CONFIRMED, "14 degrees"][: 1 + made]


def test_a_yes_to_a_question_that_was_cut_off_is_no_consent() -> None:
    tools = FakeTools(RISKY)

    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.calls = [("pay", "{}")]
        await harness.ask_question(0.5)
        (item,) = [i for i in harness.session.history.items if isinstance(i, Item) and i.role == "assistant"]
        harness.session.truncate(item.id, 100)
        harness.language_model.calls, harness.recognizer.text = [], "Yes."
        await harness.ask_question(4.0)

    run_session(scenario, tools.settings, tools)
    assert not tools.started


def test_the_question_is_asked_beside_an_output_that_has_no_words() -> None:
    """A question of the language model in its place would take the yes that follows."""
    calls = (ToolCall("0", *LOOK), ToolCall("1", "pay", "{}"))
    asked = [Message("user", "Look it up, and pay them."), Message("assistant", "", calls)]

    async def scenario(harness: SessionHarness) -> None:
        tools = FakeTools({**FakeTools().known, **RISKY})
        runs = ToolRuns(tools, lambda task: asyncio.get_running_loop().create_task(task), lambda: None)
        outputs = [Message("tool", (await runs.start(call, asked[:1])).text, tool_call_id=call.id) for call in calls]
        assert [output.content for output in outputs] == ["14 degrees", NOT_CONFIRMED]
        assert runs.words_of_outputs([*asked, *outputs], verbatim=True) == "Shall I pay?"

    run_session(scenario)


def test_a_yes_to_another_question_is_no_consent() -> None:
    asked = [
        Message("user", "Pay them."),
        Message("assistant", "", (ToolCall("1", "pay", "{}"),)),
        Message("tool", NOT_CONFIRMED, tool_call_id="1"),
        Message("assistant", "Is there anything else?"),
        Message("user", "Yes."),
    ]

    async def scenario(harness: SessionHarness) -> None:
        runs = ToolRuns(FakeTools(RISKY), lambda task: asyncio.get_running_loop().create_task(task), lambda: None)
        await runs.start(asked[1].tool_calls[0], asked[:1])
        assert runs.confirmation(asked) is None
        heard = [*asked[:3], Message("assistant", "Shall I pay?"), asked[-1]]
        assert runs.confirmation(heard) == MakeCall("pay", "{}", confirmed=True)

    run_session(scenario)


def test_an_announcement_waits_until_both_sides_are_silent() -> None:
    heard: list[str] = []

    async def scenario(harness: SessionHarness) -> None:
        await harness.hear(0.5, 0.5)
        harness.session.announce(Announcement("Your timer is up.", lambda: heard.append("timer")))
        await harness.hear(0.5, 0.5)
        await harness.hear(5.0, 0.0)

    harness = run_session(scenario)
    assert response_texts(harness) == ["The capital of France is Paris.", "Your timer is up."]
    assert heard == ["timer"]
    assert len(harness.language_model.prompts) == 1


def test_a_client_without_a_microphone_gets_announcements_at_once() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.session.announce(Announcement("Your timer is up."))
        await asyncio.sleep(1)

    assert response_texts(run_session(scenario)) == ["Your timer is up."]


PAINT = "Paint the shed red."
PROGRAM = 'look("shed")'
PAINTED = ToolOutput("red", "The shed is red.")


def ask_to_paint(tools: FakeTools, *programs: str, **settings: Any) -> SessionHarness:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.programs = {PAINT: list(programs)}
        harness.recognizer.text = PAINT
        await harness.ask_question()

    return run_session(scenario, replace(tools.settings, **settings), tools)


def test_a_task_becomes_a_program_whose_calls_are_made() -> None:
    tools = FakeTools(output=PAINTED, in_programs=True)
    harness = ask_to_paint(tools, PROGRAM, PROGRAM)
    assert tools.started == [("look", '{"city": "shed"}')]
    assert response_texts(harness) == ["The shed is red."]
    assert kinds(harness) == ["user", "call", "output", "assistant"]
    (done,) = harness.events_of(events.ResponseDone)
    assert [one.policy for one in done.metrics.decided] == ["local model", "program", "program", "output"]


def test_a_program_makes_several_calls_in_their_order() -> None:
    known = {name: ToolTraits(read_only=True) for name in ("look", "paint")}
    words = {name: ToolOutput("done", f"I did {name}.") for name in known}
    tools = FakeTools(known, outputs=words, in_programs=True)
    harness = ask_to_paint(tools, *['look("shed")\npaint("shed")'] * 2)
    assert [name for name, _ in tools.started] == ["look", "paint"]
    assert response_texts(harness) == ["I did look. I did paint."]
    assert kinds(harness) == ["user", "call", "output", "call", "output", "assistant"]


@pytest.mark.parametrize("choice", ["none", "required"])
def test_nothing_is_a_task_where_the_client_decides(choice: str) -> None:
    tools = FakeTools(in_programs=True)
    harness = ask_to_paint(tools, PROGRAM, tool_choice=choice)
    assert harness.language_model.prompts
    assert not tools.started


def test_a_programs_call_starts_before_the_turn_is_over_only_if_it_changes_nothing() -> None:
    for traits, early in ((ToolTraits(read_only=True), True), (ToolTraits(), False)):
        tools = FakeTools({"look": traits}, output=PAINTED, in_programs=True)

        async def scenario(harness: SessionHarness, tools: FakeTools = tools, early: bool = early) -> None:
            harness.language_model.programs = {PAINT: [PROGRAM] * 9}
            harness.recognizer.text = PAINT
            harness.language_model.completion = 0.1  # the user may well go on
            await harness.hear(1.0, 0.5)
            await harness.hear(0.4, 0.0)
            assert not harness.events_of(events.SpeechStopped)
            assert bool(tools.started) == early
            await harness.hear(4.0, 0.0)

        harness = run_session(scenario, tools.settings, tools)
        assert response_texts(harness) == ["The shed is red."]


def test_a_consequential_call_of_a_program_asks_first() -> None:
    tools = FakeTools({"look": ToolTraits(consequential=True)}, in_programs=True)
    assert response_texts(ask_to_paint(tools, PROGRAM, PROGRAM)) == ["Shall I look?"]
    assert not tools.started


def in_order(*names: str) -> Callable[[SessionHarness], Coroutine[Any, Any, None]]:
    """A question to a language model that calls these tools one after the other, and then answers."""

    async def scenario(harness: SessionHarness) -> None:
        model, reply = harness.language_model, harness.language_model.reply

        async def next_call(ask: Ask) -> AsyncIterator[FakeProgress]:
            if (number := len(model.prompts)) < len(names):
                model.calls, ask = [(names[number], "{}")], replace(ask, tool_choice="required")
            async for progress in reply(ask):
                yield progress

        model.reply = next_call  # type: ignore[method-assign]
        await harness.ask_question(5.0)

    return scenario


def test_a_call_may_follow_a_result() -> None:
    tools = FakeTools({"look": ToolTraits(), "write": ToolTraits()})
    harness = run_session(in_order("look", "write"), tools.settings, tools)
    assert kinds(harness) == ["user", "call", "output", "call", "output", "assistant"]


def test_a_call_with_a_number_that_the_model_made_up_is_not_made() -> None:
    for consequential in (False, True):
        tools = FakeTools({"call_up": ToolTraits(consequential=consequential)}, parameter="phone_number")
        harness = converse(tools, ("call_up", '{"phone_number": "555 0100 4321"}'))
        assert not tools.started
        output = harness.language_model.prompts[-1][-1].content
        assert output == INVENTED.format(name="call_up", value="555 0100 4321")
        assert response_texts(harness) == ["The capital of France is Paris."]


@pytest.mark.parametrize("query", ["capital of France safe 4711", "safe 4711"])
def test_a_query_leaves_with_what_was_said_alone(query: str) -> None:
    tools = FakeTools({"search": ToolTraits(outgoing=("query",))}, parameter="query")
    harness = converse(tools, ("search", json.dumps({"query": query, "count": 4})))
    if query.startswith("capital"):
        # The schema does not name `count`, so it leaves only if somebody has said it.
        assert tools.started == [("search", json.dumps({"query": "capital of France"}))]
    else:
        assert not tools.started
        assert harness.language_model.prompts[-1][-1].content == INVENTED.format(name="search", value=query)


def test_names_that_a_schema_leaves_open_are_said_words_too() -> None:
    tools = FakeTools({"search": ToolTraits(outgoing=("query",))}, parameter="query")
    arguments = {
        "query": {"query": "capital", "safe 4711": True, "France": "capital"},
        "safe 4711": "x",
        "France": True,
    }
    converse(tools, ("search", json.dumps(arguments)))
    kept = {"query": {"query": "capital", "France": "capital"}, "France": True}
    assert tools.started == [("search", json.dumps(kept))]


def test_the_user_is_asked_about_what_leaves_and_no_other_words_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the assistant says aloud may leave in a later query."""
    tools = FakeTools({"search": ToolTraits(outgoing=("query",), consequential=True)}, parameter="query")
    monkeypatch.setattr(
        tools, "question", lambda name, arguments: f"Shall I search for {json.loads(arguments)['query']}?"
    )
    harness = converse(tools, ("search", json.dumps({"query": "capital of France 4711"})))
    (question,) = response_texts(harness)
    assert "capital of France" in question and "4711" not in question


def test_words_of_an_output_are_not_said_while_an_earlier_result_has_none() -> None:
    tools = FakeTools({"look": ToolTraits(), "write": ToolTraits()}, outputs={"write": ToolOutput("ok", "Written.")})
    assert response_texts(run_session(in_order("write"), tools.settings, tools)) == ["Written."]
    harness = run_session(in_order("look", "write"), tools.settings, tools)
    assert response_texts(harness) == ["The capital of France is Paris."]
    assert [message.role for message in harness.language_model.prompts[-1][-4:]] == ["assistant", "tool"] * 2
