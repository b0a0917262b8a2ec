"""The bigger model elsewhere: who answers, what is said, and what is counted."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import httpx
import pytest

from agent.language_model import RemoteRequest
from agent.plan import Decision
from agent.planner import Planner
from agent.remote.remote_llm import BROKEN_OFF, RemoteLLM
from chat.progress import Progress
from chat.types import Ask, Message, Tool
from tests.agent.remote.scripted_server import ScriptedServer, Step, calls, chunk, remote_llm, text
from tests.fakes import FakeLanguageModel, run_on_virtual_clock

PROMPT = [Message("system", "Be brief."), Message("user", "What is the capital of France?")]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = (Tool("weather", "The weather.", CITY), Tool("remind", "Reminds."))
LOCAL = "The capital of France is Paris."
STALL: list[Step] = [100.0]


class Reply:
    """One reply: what was yielded, when the first text came, and the request if there was one."""

    def __init__(self, steps: list[tuple[float, Decision | Progress | RemoteRequest]]) -> None:
        self.requests = [step for _, step in steps if isinstance(step, RemoteRequest)]
        progress = [(at, step) for at, step in steps if not isinstance(step, Decision | RemoteRequest)]
        self.text = "".join(step.committed for _, step in progress)
        self.first_at = next((at for at, step in progress if step.committed), None)
        self.calls = [(call.name, call.arguments, call.done) for _, step in progress for call in step.tool_calls]
        self.finished = progress[-1][1].finished if progress else None


async def reply(remote: RemoteLLM, local: FakeLanguageModel | None = None, **options: Any) -> Reply:
    steps, clock = [], asyncio.get_running_loop().time
    start = clock()
    async for step in Planner(local or FakeLanguageModel(), remote=remote).respond(Ask(PROMPT, **options)):
        steps.append((clock() - start, step))
    return Reply(steps)


def one_reply(script: Sequence[Step] | int, settings: dict[str, Any] | None = None, **options: Any) -> Reply:
    async def run() -> Reply:
        return await reply(remote_llm(ScriptedServer([script]), **(settings or {})), **options)

    return run_on_virtual_clock(run)


def test_the_bigger_model_answers() -> None:
    answer = one_reply(text("Paris", " is the capital."))
    assert (answer.text, answer.finished) == ("Paris is the capital.", "stop")
    (request,) = answer.requests
    assert (request.host, request.model, request.reason, request.leaves_machine) == (
        "llm.example.org",
        "big",
        "all questions",
        True,
    )
    assert (request.status, request.input_tokens, request.output_tokens) == ("answered", 120, 7)
    assert request.first_token_ms == pytest.approx(20, abs=1)


def test_tokens_that_the_server_does_not_count_are_estimated() -> None:
    (request,) = one_reply(text("Paris" * 20, usage=None)).requests
    assert request.output_tokens == pytest.approx(25, abs=1)
    assert 20 < request.input_tokens < 60


def test_the_key_is_sent_and_not_shown() -> None:
    server = ScriptedServer([text("Paris.")])
    remote = remote_llm(server, api_key="sk-secret")
    run_on_virtual_clock(lambda: reply(remote))
    assert server.keys == ["Bearer sk-secret"]
    assert "sk-secret" not in repr(remote.settings) + str(remote.description) + remote.notice


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (401, "refuses the key (HTTP 401)"),
        (429, "is too busy, or the quota of the key is used up (HTTP 429)"),
        (500, "failed (HTTP 500)"),
        (302, "failed (HTTP 302)"),
        (400, "does not accept this request (HTTP 400)"),
        ([httpx.ConnectError("no route")], "cannot be reached (ConnectError)"),
        ([httpx.RemoteProtocolError("gone")], "broke the connection (RemoteProtocolError)"),
        (["data: <html>"], "sent something that is not a chat completion"),
        (["<html>", "</html>"], "ended the answer before it was complete"),
        ([], "ended the answer before it was complete"),
        (text(), "sent an empty answer"),
        (text(" ", "\n"), "sent an empty answer"),
        (calls(("launch", "{}")), "called a function that it was not offered"),
        (calls(("weather", '{"town": 3}')), "called weather with arguments that do not match its schema"),
        (calls(("weather", '{"city": ')), "called weather with arguments that do not match its schema"),
    ],
)
def test_the_local_model_answers_when_the_other_fails(
    script: list[Step] | int, error: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "rejoinder"):
        answer = one_reply(script, tools=TOOLS)
    assert (answer.text, answer.calls) == (LOCAL, [])
    assert (answer.requests[0].status, answer.requests[0].error) == ("failed", error)
    assert f"big at llm.example.org {error}" in caplog.text
    assert "launch" not in caplog.text  # the name is what the other model has written
    assert "repeated" not in caplog.text  # bodies of errors may contain the conversation


@pytest.mark.parametrize(
    "script", [STALL, [chunk({"role": "assistant", "content": ""}), *STALL], [chunk({"content": "<think>Hm"}), *STALL]]
)
def test_the_local_model_answers_when_the_other_is_slow(script: list[Step]) -> None:
    answer = one_reply([*script, *text("Late.")], {"first_token_s": 1.5})
    assert answer.text == LOCAL
    assert answer.first_at == pytest.approx(1.52, abs=0.01)
    assert (answer.requests[0].status, answer.requests[0].error) == ("slow", "sent nothing for 1.5 s")


@pytest.mark.parametrize("broken", [httpx.ReadError("reset"), 100.0, "data: [DONE]", "data: {"])
def test_what_was_said_is_not_said_again_when_an_answer_breaks_off(broken: Step) -> None:
    answer = one_reply([chunk({"content": "Paris is the"}), broken])
    assert answer.text == f"Paris is the. {BROKEN_OFF}"
    assert (answer.finished, answer.requests[0].status) == ("stop", "failed")


def test_an_answer_may_take_only_so_long() -> None:
    endless = [chunk({"content": "Yes. "}), *[1.0, chunk({"content": "And. "})] * 100]
    answer = one_reply(endless, {"total_s": 10})
    assert 9 <= answer.text.count("And.") <= 10
    assert answer.text.endswith(BROKEN_OFF)


@pytest.mark.parametrize("after", [100.0, httpx.ReadError("reset")])
def test_what_happens_after_the_end_of_the_answer_does_no_harm(after: Step) -> None:
    answer = one_reply([chunk({"content": "Paris."}), chunk({}, "length"), after])
    assert (answer.text, answer.finished, answer.requests[0].status) == ("Paris.", "length", "answered")


def test_calls_are_checked_and_complete() -> None:
    made = (("weather", '{"city": "Oslo"}'), ("remind", ""))
    answer = one_reply(calls(*made), tools=TOOLS, parallel_tool_calls=True)
    assert answer.calls == [("weather", '{"city": "Oslo"}', True), ("remind", "{}", True)]
    assert answer.finished == "tool_calls"
    assert len(one_reply(calls(*made), tools=TOOLS).calls) == 1


def test_functions_are_sent_unless_none_may_be_called() -> None:
    server = ScriptedServer([text("Paris.")])
    run_on_virtual_clock(lambda: reply(remote_llm(server), tools=TOOLS))
    run_on_virtual_clock(lambda: reply(remote_llm(server), tools=TOOLS, tool_choice="none"))
    with_tools, without = server.bodies
    assert [tool["function"]["name"] for tool in with_tools["tools"]] == ["weather", "remind"]
    assert "tools" not in without


def test_a_server_that_is_down_is_not_asked_again_for_a_while() -> None:
    server = ScriptedServer([500, 500, text("Paris.")])

    async def run() -> list[str]:
        remote, answers = remote_llm(server), []
        for _ in range(4):
            answers.append((await reply(remote)).text)
        await asyncio.sleep(5)
        return [*answers, (await reply(remote)).text]

    assert run_on_virtual_clock(run) == [LOCAL] * 4 + ["Paris."]
    assert len(server.bodies) == 3


def test_a_server_says_when_it_wants_to_be_asked_again() -> None:
    server = ScriptedServer([429, text("Paris.")], headers={"retry-after": "30"})

    async def run() -> None:
        remote = remote_llm(server)
        for wait_s in (0, 29, 2):
            await asyncio.sleep(wait_s)
            await reply(remote)

    run_on_virtual_clock(run)
    assert len(server.bodies) == 2


def test_one_conversation_that_is_too_long_does_not_stop_the_others() -> None:
    server = ScriptedServer([400])

    async def run() -> None:
        remote = remote_llm(server)
        for _ in range(5):
            await reply(remote)

    run_on_virtual_clock(run)
    assert len(server.bodies) == 5


def test_easy_questions_and_texts_with_a_grammar_stay_here() -> None:
    server = ScriptedServer([text("Paris.")])
    easy = run_on_virtual_clock(lambda: reply(remote_llm(server, scope="hard")))
    held = run_on_virtual_clock(lambda: reply(remote_llm(server), grammar="any"))
    for answer in (easy, held):
        assert (answer.text, answer.requests, server.bodies) == (LOCAL, [], [])


def test_a_cancelled_answer_ends_and_closes_its_connection() -> None:
    server = ScriptedServer([text(*["word "] * 100, pause=1)])

    async def run() -> tuple[str, RemoteRequest]:
        local = FakeLanguageModel()
        planner, said, request = Planner(local, remote=remote_llm(server)), "", None
        async for step in planner.respond(Ask(PROMPT)):
            if isinstance(step, RemoteRequest):
                request = step
            elif not isinstance(step, Decision):
                said += step.committed
                if step.committed and said.count("word") == 3:
                    planner.cancel()
        assert local.cancelled == 1 and not local.prompts and request is not None
        return said, request

    said, request = run_on_virtual_clock(run)
    assert said == "word word word "
    assert (request.status, request.output_tokens > 0, server.closed_early) == ("running", True, 1)


def test_nothing_is_sent_until_the_response_goes_on() -> None:
    server = ScriptedServer([text("Paris.")])

    async def run() -> None:
        planner = Planner(FakeLanguageModel(), remote=remote_llm(server))
        planner.prepare(Ask(PROMPT))
        async with aclosing(planner.respond(Ask(PROMPT))) as steps:  # type: ignore[type-var]
            assert isinstance(await anext(steps), Decision)
            assert isinstance(await anext(steps), RemoteRequest)
            await asyncio.sleep(10)
            assert not server.bodies
            assert (await anext(steps)).committed == "Paris."
            assert len(server.bodies) == 1

    run_on_virtual_clock(run)
