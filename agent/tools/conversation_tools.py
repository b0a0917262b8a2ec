"""The server's tools in one conversation: which of them it may call, and for whom."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from agent.capture.form_runner import Dialogue
from agent.tools.alarms import Alarms, Announce, Report
from agent.tools.function_tool import Caller, ServerTool
from agent.tools.protocol import ToolOutput, ToolTraits
from agent.tools.user_data import ANONYMOUS, owner_id
from agent.words.names import names_in, words_in
from chat.types import Tool


class ConversationTools:
    """The server's tools in one conversation. None may be called until `enable`.

    Args:
        registry: the tools of the server by name, which come and go with those of MCP servers.
        alarms: announces what is due; None if there are no timers.
        owner: whose timers and notes these are; if empty, they are nobody's after the conversation.
        allowed: names of the tools that there are for this conversation; None for all.
    """

    def __init__(
        self,
        registry: Mapping[str, ServerTool],
        alarms: Alarms | None,
        owner: str = "",
        allowed: frozenset[str] | None = None,
    ) -> None:
        self._registry, self._alarms, self._allowed = registry, alarms, allowed
        self._announce: Announce | None = None
        self._report: Report | None = None
        self._caller = Caller(owner or owner_id(ANONYMOUS, secrets.token_hex()))
        self._anonymous = not owner
        self._names: frozenset[str] = frozenset()
        self._disconnect: Callable[[], None] | None = None
        self._start: Callable[[str], None] | None = None

    def identify(self, token: str) -> None:
        """The client has named itself by a secret of its own, which goes before its API key."""
        announce = self._announce
        self.close()
        self._caller, self._anonymous = Caller(owner_id("token", token)), False
        if announce is not None:
            self.connect(announce, self._report)

    def enable(self, names: Collection[str]) -> None:
        """Choose the tools that the conversation may call, of those that it is allowed."""
        self._names = frozenset(names) if self._allowed is None else self._allowed.intersection(names)
        if self._announce is not None:
            self.connect(self._announce, self._report)
        if self._start is not None and (opening := self.opening):
            start, self._start = self._start, None
            start(opening)

    def open_call(self, start: Callable[[str], None]) -> None:
        """It is a phone call, which a tool may open: call `start` with its name once it may be called."""
        self._start = start

    def connect(self, announce: Announce, report: Report | None = None) -> None:
        """Announce what is due to this owner by `announce`, and show by `report` what is not due yet, from when the
        conversation may call tools."""
        self._announce, self._report = announce, report
        if self._alarms is not None and self._names and self._disconnect is None:
            self._disconnect = self._alarms.connect(self._caller.owner, announce, report)

    @property
    def all(self) -> list[ServerTool]:
        """All tools that the conversation is allowed."""
        return [tool for tool in self._registry.values() if self._allowed is None or tool.name in self._allowed]

    @property
    def _enabled(self) -> list[ServerTool]:
        return [tool for tool in self._registry.values() if tool.name in self._names]

    def names(self) -> list[str]:
        """The words that the tools keep for the user, and the names in what they say about themselves."""
        kept = [] if self._alarms is None or not self._names else self._alarms.texts(self._caller.owner)
        about = [f"{each.description} {each.parameters}" for each in self.declarations]
        return [*dict.fromkeys(words_in(kept)), *names_in(about)]

    @property
    def pronunciations(self) -> dict[str, str]:
        """How the user wants words to be said, as earlier conversations have learned."""
        return self._alarms.pronunciations(self._caller.owner) if self._alarms is not None and self._keeps_notes else {}

    def add_pronunciations(self, said: Mapping[str, str]) -> None:
        """Keep how the user wants words to be said, for later conversations, if they may have notes."""
        if said and self._alarms is not None and self._keeps_notes:
            self._alarms.add_pronunciations(self._caller.owner, said)

    @property
    def _keeps_notes(self) -> bool:
        return "write_note" in self._names

    @property
    def declarations(self) -> tuple[Tool, ...]:
        """The tools that may be called, for the language model."""
        return tuple(tool.declaration for tool in self._enabled)

    def traits(self, name: str) -> ToolTraits | None:
        """How a tool is called; None if it may not be called, or is the client's."""
        tool = self._registry.get(name) if name in self._names else None
        return tool.traits if tool is not None else None

    def question(self, name: str, arguments: str) -> str:
        """Asks the user whether a consequential call is to be made. Ends with a question mark."""
        tool, given = self._registry.get(name), json.loads(arguments)
        if tool is not None and tool.traits.question:
            try:
                stated = {key: value for key, value in given.items() if value not in ("", None)}
                return tool.traits.question.format(**stated)
            except (KeyError, IndexError, ValueError):
                pass  # it names an argument that was left out
        action = name.replace("_", " ")
        details = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in given.items() if value != "")
        return f"Shall I {action}, with {details}?" if details else f"Shall I {action}?"

    @property
    def functions(self) -> tuple[Tool, ...]:
        """Those that may be called, also by programs."""
        return tuple(tool.declaration for tool in self._enabled if tool.traits.in_programs == "called")

    @property
    def replaced(self) -> frozenset[str]:
        """Names of those, and of the tools that do what programs compute by themselves."""
        return frozenset(tool.name for tool in self._enabled if tool.traits.in_programs)

    async def call(self, name: str, arguments: str, dialogue: Dialogue | None = None) -> ToolOutput:
        """Make a call. Raises whatever the tool raises; cancelling the task cancels the call.

        Args:
            arguments: JSON text of an object.
            dialogue: asks the user for data; None where nobody can be asked.
        """
        tool = self._registry.get(name) if name in self._names else None
        if tool is None:
            raise ValueError(f"the tool {name} is not available any more")
        return await tool.run(json.loads(arguments), replace(self._caller, dialogue=dialogue))

    @property
    def opening(self) -> str:
        """The tool that phone calls begin with, of those that may be called; empty if none does."""
        return next((tool.name for tool in self._enabled if tool.traits.opens_calls), "")

    def disconnect(self) -> None:
        """Nobody listens: announce nothing until `connect`."""
        if self._disconnect is not None:
            self._disconnect()
        self._disconnect = self._announce = None

    def close(self) -> None:
        """The conversation has ended. What belongs to nobody else is forgotten."""
        self.disconnect()
        if self._anonymous and self._alarms is not None:
            self._alarms.forget(self._caller.owner)
