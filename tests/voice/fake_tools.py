"""Tools for tests: they return what they are told to, after a while, and record their calls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.capture.form_runner import Dialogue
from agent.tools.protocol import ToolOutput, ToolTraits
from chat.types import Tool
from voice.playback import SessionSettings


@dataclass
class FakeTools:
    """The tools `known`, each of which has one parameter, takes `seconds` and returns its own of `outputs`, or
    `output`."""

    known: dict[str, ToolTraits] = field(default_factory=lambda: {"look": ToolTraits(read_only=True)})
    seconds: float = 0.0
    output: ToolOutput = field(default_factory=lambda: ToolOutput("14 degrees"))
    outputs: dict[str, ToolOutput] = field(default_factory=dict)
    failing: bool = False
    started: list[tuple[str, str]] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    in_programs: bool = False
    parameter: str = "city"
    pronunciations: dict[str, str] = field(default_factory=dict)

    def traits(self, name: str) -> ToolTraits | None:
        return self.known.get(name)

    def question(self, name: str, arguments: str) -> str:
        return f"Shall I {name}?"

    def names(self) -> list[str]:
        return []

    def add_pronunciations(self, said: Mapping[str, str]) -> None:
        self.pronunciations |= said

    @property
    def functions(self) -> tuple[Tool, ...]:
        return self._declarations if self.in_programs else ()

    @property
    def replaced(self) -> frozenset[str]:
        return frozenset(self.known) if self.in_programs else frozenset()

    @property
    def _declarations(self) -> tuple[Tool, ...]:
        properties = {self.parameter: {"type": "string"}}
        return tuple(Tool(name, "", {"type": "object", "properties": properties}) for name in self.known)

    async def call(self, name: str, arguments: str, dialogue: Dialogue) -> ToolOutput:
        self.started.append((name, arguments))
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        if self.failing:
            raise RuntimeError("out of paper")
        self.finished.append(name)
        return self.outputs.get(name, self.output)

    @property
    def settings(self) -> SessionSettings:
        return SessionSettings(tools=self._declarations)
