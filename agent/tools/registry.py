"""All tools of the server, by name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from agent.tools.function_tool import ServerTool


class ToolRegistry:
    """The tools of the server.

    Raises:
        ValueError: two have the same name.
    """

    def __init__(self, tools: Iterable[ServerTool] = ()) -> None:
        self._tools: dict[str, ServerTool] = {}
        for tool in tools:
            self.add(tool)

    def add(self, tool: ServerTool) -> None:
        """Add a tool. Raises ValueError if there is one of its name."""
        if tool.name in self._tools:
            raise ValueError(f"there are two tools named {tool.name!r}: rename one of them")
        self._tools[tool.name] = tool

    def remove(self, name: str) -> None:
        """Remove a tool."""
        self._tools.pop(name, None)

    def __iter__(self) -> Iterator[ServerTool]:
        return iter(tuple(self._tools.values()))

    def get(self, name: str) -> ServerTool | None:
        """The tool of this name."""
        return self._tools.get(name)
