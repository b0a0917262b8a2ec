"""Planners with the built-in tools and a scripted language model, and what their responses are made of."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agent.language_model import RemoteRequest
from agent.plan import Call, Decision, MakeCall
from agent.planner import Planner
from agent.tool_runs import ToolRuns
from agent.tools.server_tools import ServerTools, ToolSettings
from chat.progress import Progress
from chat.types import Ask, Message, Tool
from tests.fakes import FakeLanguageModel, FakeProgress

SYSTEM = Message("system", "Be kind.")
SAID = "Set a timer for 5 minutes."
SUM = "How much are 2 tickets at 3 euros?"
POWER, LOCAL = "What does 999 to the power of 50 come to?", "The capital of France is Paris."
PAY, NOW = Tool("pay", "Pay a bill."), datetime(2026, 11, 22, 15, 0, tzinfo=UTC)


@dataclass
class SteppingLanguageModel(FakeLanguageModel):
    """Lets others run before each step. Records which requests it is answering, and its forks."""

    seconds_per_word: float = 0.0
    answering: list[Ask] = field(default_factory=list)
    forks: list[FakeLanguageModel] = field(default_factory=list)

    async def reply(self, ask: Ask) -> AsyncIterator[FakeProgress]:
        self.answering.append(ask)
        try:
            async with aclosing(super().reply(ask)) as replying:  # type: ignore[type-var]
                async for progress in replying:
                    await asyncio.sleep(0)
                    yield progress
        finally:
            self.answering.remove(ask)

    def fork(self) -> FakeLanguageModel:
        self.forks.append(super().fork())
        return self.forks[-1]


class Setup:
    """A planner with the built-in tools, and what it is asked."""

    def __init__(self, folder: Path, programs: dict[str, list[str]], **options: Any) -> None:
        tools = ServerTools(ToolSettings(data=folder)).local_conversation()
        self.model = SteppingLanguageModel(programs=programs)
        self.declared = (*tools.declarations, PAY)
        runs = ToolRuns(tools, asyncio.ensure_future, lambda: None)
        self.planner = Planner(self.model, runs, **options, now=lambda: NOW)

    def ask(self, *said: str, **options: Any) -> Ask:
        """A conversation in which the user says this."""
        messages = [SYSTEM]
        for words in said:
            messages += [Message("user", words), Message("assistant", "Fine.")]
        return Ask(messages[:-1], self.declared, **options)

    async def respond(self, *said: str, spoken: bool = False, **options: Any) -> Steps:
        return Steps([step async for step in self.planner.respond(self.ask(*said, spoken=spoken), **options)])


class Steps:
    """What a response was made of."""

    def __init__(self, steps: Sequence[Decision | Progress | RemoteRequest]) -> None:
        self.decisions = [step for step in steps if isinstance(step, Decision)]
        self.requests = [step for step in steps if isinstance(step, RemoteRequest)]
        progress = [step for step in steps if not isinstance(step, Decision | RemoteRequest)]
        self.text = "".join(step.committed for step in progress)
        made = [delta for step in progress for delta in step.tool_calls]
        self.calls = [(made[0].name, "".join(delta.arguments for delta in made))] if made else []
        self.finished = progress[-1].finished if progress else None

    @property
    def policies(self) -> list[str]:
        return [decision.policy for decision in self.decisions]

    @property
    def outcome(self) -> tuple[list[str], Any, str]:
        last = self.decisions[-1].do
        return self.policies, None if isinstance(last, Ask) else last, self.text


def calls(*made: tuple[str, dict[str, Any]]) -> Call:
    return Call(tuple(MakeCall(name, json.dumps(arguments)) for name, arguments in made))
