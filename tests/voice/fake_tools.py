"""Tools for tests: they return what they are told to, after a while, and record their calls."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from agent.capture.form_runner import Dialogue
from agent.tools.protocol import CertainCall, ToolOutput, ToolTraits
from chat.types import Tool
from voice.playback import SessionSettings


@dataclass
class FakeTools:
    """The tools `known`, each of which takes `seconds` and returns its own of `outputs`, or `output`. What the user
    says may be a key of `certain`."""

    known: dict[str, ToolTraits] = field(default_factory=lambda: {"look": ToolTraits(read_only=True)})
    seconds: float = 0.0
    output: ToolOutput = field(default_factory=lambda: ToolOutput("14 degrees"))
    outputs: dict[str, ToolOutput] = field(default_factory=dict)
    failing: bool = False
    started: list[tuple[str, str]] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    said: str = ""
    certain: dict[str, CertainCall] = field(default_factory=dict)
    known_before: str = ""

    def traits(self, name: str) -> ToolTraits | None:
        return self.known.get(name)

    def question(self, name: str, arguments: str) -> str:
        return f"Shall I {name}?"

    def certain_call(self, names: Collection[str], turns: Sequence[tuple[str, str]]) -> CertainCall | None:
        call = self.certain.get(turns[-1][0])
        return call if call is not None and call.name in names else None

    async def call(self, name: str, arguments: str, said: str, dialogue: Dialogue, known: str = "") -> ToolOutput:
        self.said, self.known_before = said, known
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
        return SessionSettings(tools=tuple(Tool(name) for name in self.known))
