"""Responses that call the tools of a real MCP server in a loop, with a language model that follows a script."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import openai
import pytest
from openai import OpenAI

from agent.tool_loop import REMOVED
from chat.progress import Progress
from chat.types import Ask, Tool, ToolCallDelta
from lab.benchmarks.agent_loops.shop import Faults, Shop
from lab.benchmarks.agent_loops.tasks import TASKS, Call, Task
from model.engine.conversation import PromptTooLong
from model.engine.engine import Engine
from server.chat_completions import responses, server_side_tools
from tests.agent.tools.mcp_http_server import mcp_server
from tests.real_time import HANG_S
from tests.server.live_server import serving

ANSWER = "That is all I found."
CONTEXT = 20_000
"""Characters that the scripted model reads."""


class Scripted:
    """Makes the calls of a script while it has tools, then answers. Records what it is asked."""

    def __init__(self) -> None:
        self.script: Sequence[Call] = ()
        self.asked: list[Ask] = []

    def check_tools(self, tools: Sequence[Tool]) -> None:
        assert tools

    async def reply(self, ask: Ask) -> AsyncIterator[Progress]:
        if sum(len(message.content) for message in ask.messages) > CONTEXT:
            raise PromptTooLong("the conversation is too long")
        self.asked.append(Ask(list(ask.messages), ask.tools, ask.tool_choice, max_tokens=ask.max_tokens))
        if ask.tools and self.script:
            (name, arguments), *self.script = self.script
            text = json.dumps(arguments)
            for n, piece in enumerate((text[:4], text[4:])):
                delta = ToolCallDelta(0, name, piece, bool(n))
                yield Progress(
                    tokens=n + 1, step=n + 1, prompt_tokens=9, tool_calls=(delta,), finished="tool_calls" if n else None
                )
        else:
            yield Progress(ANSWER, tokens=1, step=1, prompt_tokens=9, finished="stop")


@pytest.fixture(scope="module")
def shop() -> Iterator[tuple[Shop, str]]:
    shop = Shop()
    with mcp_server(shop.server) as (url, _):
        yield shop, url


@pytest.fixture(scope="module")
def loop_client(shop: tuple[Shop, str], tiny_engine: Engine) -> Iterator[OpenAI]:
    with serving(engine=tiny_engine, mcp_servers=frozenset({shop[1]})) as address:
        yield OpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0, timeout=HANG_S)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    scripted = Scripted()
    monkeypatch.setattr(responses, "new_conversation", lambda engine, **options: scripted)
    monkeypatch.setattr(server_side_tools, "CALL_TIMEOUT_S", 0.5)
    return scripted


def shop_tools(url: str, **fields: Any) -> list[Any]:
    return [{"type": "mcp", "server_label": "shop", "server_url": url, "require_approval": "never", **fields}]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_ends_as_specified(task: Task, shop: tuple[Shop, str], loop_client: OpenAI, model: Scripted) -> None:
    shop[0].begin(task.faults)
    model.script = task.script
    response: Any = loop_client.responses.create(
        model="tiny", input=task.request, tools=shop_tools(shop[1]), extra_body=task.options
    )
    listed, *calls, message = response.output
    assert (response.status, listed.type, message.type, response.output_text) == (
        "completed",
        "mcp_list_tools",
        "message",
        ANSWER,
    )
    assert [call.type for call in calls] == ["mcp_call"] * len(calls)
    for call, (name, arguments) in zip(calls, task.script, strict=False):
        assert (call.name, json.loads(call.arguments)) == (name, arguments)
        assert (call.output is None) == (call.error is not None) == (call.status == "failed")
        assert len(call.output or call.error) < 8100
    assert task.made in (None, len(calls)) and response.rejoinder["tool_calls"] == len(calls)
    assert task.failed in (None, sum(call.status == "failed" for call in calls))
    if task.served is not None:
        assert len(shop[0].served) == task.served
    assert response.rejoinder["stopped_by"] == task.stopped_by
    assert bool(model.asked[-1].tools) == (task.stopped_by is None)
    read = [message.content for message in model.asked[-1].messages if message.role == "tool"]
    assert len(read) == len(calls) and sum(map(len, read)) < CONTEXT
    assert (REMOVED in read) == ("than the context holds" in task.name)


def test_a_stream_reports_every_call_as_it_is_made(
    shop: tuple[Shop, str], loop_client: OpenAI, model: Scripted
) -> None:
    shop[0].begin(Faults())
    model.script = [("price", {"product": "lamp"}), ("stock", {"product": "lamp"})]
    stream = loop_client.responses.create(model="tiny", input="A lamp?", tools=shop_tools(shop[1]), stream=True)
    events: list[Any] = list(stream)
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    one_call = [
        "output_item.added", "mcp_call_arguments.delta", "mcp_call_arguments.delta", "mcp_call_arguments.done",
        "mcp_call.in_progress", "mcp_call.completed", "output_item.done",
    ]  # fmt: skip
    listing = ["output_item.added", "mcp_list_tools.in_progress", "mcp_list_tools.completed", "output_item.done"]
    assert kinds[: 6 + 14] == ["created", "in_progress", *listing, *one_call, *one_call]
    done = [event for event in events if event.type == "response.output_item.done"]
    assert [event.output_index for event in done] == [0, 1, 2, 3]
    assert [event.item for event in done] == events[-1].response.output


def test_a_response_that_is_cancelled_makes_no_further_call(
    shop: tuple[Shop, str], loop_client: OpenAI, model: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_side_tools, "CALL_TIMEOUT_S", 60.0)
    shop[0].begin(Faults(seconds={"price": 5.0}))
    model.script = [("price", {"product": "lamp"}), ("stock", {"product": "lamp"})]
    stream = loop_client.responses.create(model="tiny", input="A lamp?", tools=shop_tools(shop[1]), stream=True)
    last, identifier = None, ""
    for event in stream:
        last = event
        if event.type == "response.created":
            identifier = event.response.id
        if event.type == "response.mcp_call.in_progress":
            threading.Timer(0.1, loop_client.responses.cancel, (identifier,)).start()
    assert (
        last is not None
        and last.response.status == "cancelled"
        and last.response.rejoinder["stopped_by"] == "cancelled"
    )
    assert [item.type for item in last.response.output] == ["mcp_list_tools", "mcp_call"]
    assert shop[0].served == ["price"]
    with pytest.raises(openai.NotFoundError, match="is being generated"):
        loop_client.responses.cancel(identifier)


def test_a_client_that_hangs_up_ends_the_loop(shop: tuple[Shop, str], loop_client: OpenAI, model: Scripted) -> None:
    shop[0].begin(Faults(seconds={"read_page": 0.2}))
    model.script = [("read_page", {"page": page}) for page in range(1, 40)]
    with pytest.raises(openai.APITimeoutError):
        loop_client.with_options(timeout=0.5).responses.create(model="tiny", input="Read.", tools=shop_tools(shop[1]))
    made = len(shop[0].served)
    time.sleep(0.6)
    assert 0 < made <= len(shop[0].served) <= made + 1


def test_a_later_response_has_read_the_calls(shop: tuple[Shop, str], loop_client: OpenAI, model: Scripted) -> None:
    shop[0].begin(Faults())
    model.script = [("price", {"product": "lamp"})]
    first = loop_client.responses.create(model="tiny", input="A lamp?", tools=shop_tools(shop[1]))
    loop_client.responses.create(model="tiny", input="And?", previous_response_id=first.id)
    by_reference = [(message.role, message.content) for message in model.asked[-1].messages]
    items: Any = [{"role": "user", "content": "A lamp?"}, *first.output, {"role": "user", "content": "And?"}]
    loop_client.responses.create(
        model="tiny", input=[item if isinstance(item, dict) else item.model_dump() for item in items]
    )
    assert [(message.role, message.content) for message in model.asked[-1].messages] == by_reference
    assert by_reference[2] == ("tool", '{"price": 24.5}')


def test_tools_are_chosen_and_must_be_called_once_only(
    shop: tuple[Shop, str], loop_client: OpenAI, model: Scripted
) -> None:
    model.script = [("price", {"product": "lamp"})]
    tools = shop_tools(shop[1], allowed_tools=["price"], authorization="secret")
    response = loop_client.responses.create(model="tiny", input="A lamp?", tools=tools, tool_choice="required")
    assert [[tool.name for tool in ask.tools] for ask in model.asked] == [["price"], ["price"]]
    assert [ask.tool_choice for ask in model.asked] == ["required", "auto"]
    assert "secret" not in response.model_dump_json()


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ({"server_url": "http://127.0.0.1:9/other"}, "does not allow the MCP server"),
        ({"require_approval": "always"}, "calls cannot be approved here"),
        ({"server_label": "a shop"}, "server_label"),
    ],
)
def test_servers_that_cannot_be_used_are_refused(
    shop: tuple[Shop, str], loop_client: OpenAI, tool: dict[str, Any], message: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=message):
        loop_client.responses.create(model="tiny", input="Hello.", tools=shop_tools(shop[1], **tool))


def test_a_server_that_is_down_fails_the_request(tiny_engine: Engine) -> None:
    url = "http://127.0.0.1:9/mcp"
    with serving(engine=tiny_engine, mcp_servers=frozenset({url})) as address:
        client = OpenAI(base_url=f"http://{address}/v1", api_key="none", max_retries=0, timeout=HANG_S)
        with pytest.raises(openai.APIStatusError, match="cannot be listed") as error:
            client.responses.create(model="tiny", input="Hello.", tools=shop_tools(url))
    assert error.value.status_code == 424
