"""All that the server's tools need: made once, shared by all conversations."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.background_tasks import cancel
from agent.program.units import load_units
from agent.program.values import local_time
from agent.storage import data_folder
from agent.tools.alarms import Alarms
from agent.tools.calculator import calculator_tools
from agent.tools.conversation_tools import ConversationTools
from agent.tools.function_tool import ServerTool
from agent.tools.notes import note_tools
from agent.tools.tool_file import load_tool_file
from agent.tools.user_data import USER_DATA_FILE, UserData
from chat.types import Tool

if TYPE_CHECKING:
    from agent.tools.mcp_servers import McpServerConnection
    from agent.tools.weather import Weather, WeatherSettings
    from agent.tools.web_search import WebSearch

_log = logging.getLogger("rejoinder.server")

_TWO_TOOLS = "there are two tools named {!r}: rename one of them"


@dataclass(frozen=True)
class ToolSettings:
    """Which tools the server has.

    Attributes:
        files: Python files of tools.
        mcp_config: file that names MCP servers, or None.
        builtin: whether there are the built-in tools.
        data: folder for timers and notes; None for the user's own.
        weather: where the weather comes from; None without it.
        search_url: a SearXNG server to search the web with; empty without it.
    """

    files: tuple[Path, ...] = ()
    mcp_config: Path | None = None
    builtin: bool = True
    data: Path | None = None
    weather: WeatherSettings | None = None
    search_url: str = ""


class ServerTools:
    """The tools of the server.

    Args:
        now: the time here, with its zone.

    Attributes:
        registry: the tools by name.

    Raises:
        OSError: the folder cannot be used.
        ValueError: a file cannot be used, or two tools have the same name.
    """

    def __init__(self, settings: ToolSettings, now: Callable[[], datetime] = local_time) -> None:
        self.registry: dict[str, ServerTool] = {}
        for path in settings.files:
            for tool in load_tool_file(path):
                if tool.name in self.registry:
                    raise ValueError(_TWO_TOOLS.format(tool.name))
                self.registry[tool.name] = tool
        self._mcp_servers: list[McpServerConnection] = []
        if settings.mcp_config is not None:
            # Late: the SDK takes a second to import.
            from agent.tools.mcp_servers import McpServerConnection, read_mcp_config

            for name, config in read_mcp_config(settings.mcp_config).items():
                on_tools = partial(self._replace_tools, set())
                self._mcp_servers.append(McpServerConnection(name, config, on_tools))
        self._data: UserData | None = None
        self._alarms: Alarms | None = None
        self._services: list[Weather | WebSearch] = []
        if settings.weather is not None:
            from agent.tools.weather import Weather

            self._services.append(Weather(settings.weather))
        if settings.search_url:
            from agent.tools.web_search import WebSearch

            self._services.append(WebSearch(settings.search_url))
        builtin = [service.tool() for service in self._services]
        if settings.builtin:
            self._data = UserData((settings.data or data_folder()) / USER_DATA_FILE)
            self._alarms = Alarms(self._data, now)
            builtin += builtin_tools(self._data, self._alarms, now)
        for tool in builtin:
            self.registry.setdefault(tool.name, tool)  # a tool of the operator replaces the built-in one of its name

    @property
    def functions(self) -> tuple[Tool, ...]:
        """Those that programs may call."""
        return tuple(tool.declaration for tool in self.registry.values() if tool.traits.in_programs == "called")

    def conversation(self, owner: str = "", allowed: frozenset[str] | None = None) -> ConversationTools:
        """The tools for one conversation, as `ConversationTools` describes."""
        return ConversationTools(self.registry, self._alarms, owner, allowed)

    def local_conversation(self) -> ConversationTools:
        """All tools, for a conversation with the user of this machine."""
        tools = self.conversation("local")
        tools.enable(self.registry)
        return tools

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Stay connected to the MCP servers. Waits until each has listed its tools, or has failed to."""
        tasks = [asyncio.create_task(server.run()) for server in self._mcp_servers]
        if self._alarms is not None:  # the built-in tools are there
            tasks.append(asyncio.create_task(asyncio.to_thread(load_units)))
        try:
            await asyncio.gather(*(server.listed.wait() for server in self._mcp_servers))
            yield
        finally:
            await cancel(tasks)
            for service in self._services:
                await service.close()
            if self._data is not None:
                self._data.close()

    def _replace_tools(self, present: set[str], tools: list[ServerTool]) -> None:
        """The tools of one MCP server have changed; `present` are the names of those that it has brought."""
        for name in present:
            self.registry.pop(name, None)
        present.clear()
        for tool in tools:
            if tool.name in self.registry:
                _log.warning("%s; the one of the MCP server is not used", _TWO_TOOLS.format(tool.name))
                continue
            self.registry[tool.name] = tool
            present.add(tool.name)


def builtin_tools(data: UserData, alarms: Alarms, now: Callable[[], datetime] = local_time) -> list[ServerTool]:
    """All of them."""
    return [*calculator_tools(now), *alarms.tools(), *note_tools(data, now)]
