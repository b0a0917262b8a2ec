"""Which of the server's tools a conversation has, by where it takes place and by key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from agent.tools.conversation_tools import ConversationTools
from agent.tools.server_tools import ServerTools, ToolSettings
from cli.main import app as cli
from lab.simulator.call import place_call
from server.access.admission import Admission
from server.access.keys import ApiKeys, KeyStore
from server.access.tool_access import ToolAccess
from server.serving.service import load_service
from server.serving.settings import ServeSettings
from tests.real_time import retried_under_load
from tests.server.live_server import connected, receive, serving
from tests.server.telephony.live_server import check, live_server, plan

OWN = {"type": "mcp", "server_label": "rejoinder", "server_url": "rejoinder:tools"}

FILE = """
[serve]
port = 8001
[tools]
web = ["get_time", "calculate", "write_note"]
phone = []
[tools.keys]
"guest.1" = ["calculate", "set_timer"]
"""


async def test_a_conversation_lists_and_calls_what_its_channel_and_its_key_allow(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.sqlite")
    keys, tools = {name: store.add(name) for name in ("guest.1", "other")}, ServerTools(ToolSettings(data=tmp_path))
    access = settings_of(tmp_path).tool_access
    admission = Admission(4, ApiKeys(store=store))
    everything = set(tools.registry)

    async def listed(address: str, key: str, **headers: str) -> set[str]:
        headers = {"Authorization": f"Bearer {keys[key]}", **headers}
        async with connected(address, additional_headers=headers) as client:
            update = {"type": "session.update", "session": {"type": "realtime", "tools": [OWN]}}
            await client.send(json.dumps(update))
            return {tool["name"] for tool in (await receive(client, "conversation.item.done"))["item"]["tools"]}

    with serving(admission=admission, tools=tools, tool_access=access) as address:
        page = {"Origin": f"http://{address}"}
        assert await listed(address, "other") == everything
        assert await listed(address, "other", **page) == {"get_time", "calculate", "write_note"}
        assert await listed(address, "guest.1") == {"calculate", "set_timer"}
        assert await listed(address, "guest.1", **page) == {"calculate"}
    assert access.allowed("phone", "other") == frozenset()


@retried_under_load()
async def test_a_call_has_the_tools_of_the_phone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, begin = list[set[str]](), ServerTools.conversation

    def conversation(tools: ServerTools, *arguments: Any) -> ConversationTools:
        begun = begin(tools, *arguments)
        begun.enable(tools.registry)
        given.append({tool.name for tool in begun.declarations})
        return begun

    monkeypatch.setattr(ServerTools, "conversation", conversation)
    for phone in ((), ("get_time",)):
        tools = ServerTools(ToolSettings(data=tmp_path))
        with live_server(tools=tools, tool_access=ToolAccess(web=("calculate",), phone=phone)) as server:
            check(await place_call(plan(server)))
    assert given == [set(), {"get_time"}]


async def test_what_is_not_allowed_cannot_be_called(tmp_path: Path) -> None:
    conversation = ServerTools(ToolSettings(data=tmp_path)).conversation("me", frozenset({"get_time"}))
    conversation.enable(["get_time", "write_note"])
    assert [tool.name for tool in conversation.declarations] == ["get_time"]
    assert conversation.traits("write_note") is None
    with pytest.raises(ValueError, match="write_note is not available"):
        await conversation.call("write_note", '{"text": "milk"}')


def settings_of(folder: Path) -> ServeSettings:
    (folder / "rejoinder.toml").write_text(FILE)
    return ServeSettings(config=folder / "rejoinder.toml")


def test_the_lists_come_from_the_configuration_file_and_are_printed(tmp_path: Path) -> None:
    access = settings_of(tmp_path).tool_access
    assert access == ToolAccess(
        web=("get_time", "calculate", "write_note"), phone=(), keys={"guest.1": ("calculate", "set_timer")}
    )
    first = CliRunner().invoke(cli, ["config", "--config", str(tmp_path / "rejoinder.toml")]).output
    (tmp_path / "again.toml").write_text(first)
    assert ServeSettings(config=tmp_path / "again.toml").tool_access == access
    (tmp_path / "bad.toml").write_text('[tools]\nweb = ["get_time"]\nfax = []\n')
    with pytest.raises(ValueError, match=r"line 3: there is no 'fax' in .tools.: use web, phone, api, keys"):
        ServeSettings(config=tmp_path / "bad.toml")


def test_a_list_for_a_key_that_does_not_exist_is_an_error_before_any_model_is_loaded(tmp_path: Path) -> None:
    settings = settings_of(tmp_path)
    with pytest.raises(ValueError, match=r"lists for guest.1, but no key is called so"):
        load_service(settings.model_copy(update={"data": tmp_path}), Console(), loopback=True)


async def test_a_tool_that_does_not_exist_is_named_at_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    access = ToolAccess(web=("get_time", "get_tme"), keys={"guest": ("search_wbe",)})
    with serving(tools=ServerTools(ToolSettings(data=tmp_path)), tool_access=access) as address:
        async with connected(address) as client:
            await receive(client, "session.created")
    assert "[tools] lists get_tme, search_wbe, which this server does not have now" in caplog.text
