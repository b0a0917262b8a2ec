"""With an effort, a response is worked out before it is said."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.plan import Say
from agent.planner import Planner
from agent.program.speech import THINKING_PHRASE
from agent.reasoning.prompt import KINDS, beginning, sample_grammar
from chat.types import Ask, Lark, Message
from tests.agent.test_planner import LOCAL, NOW, SYSTEM, Steps
from tests.fakes import FakeLanguageModel, FakeProgress, run_on_virtual_clock


class Reasoning(FakeLanguageModel):
    """Says that the answer is of a kind, and works it out."""

    kind = "number"

    async def reply(self, ask: Ask) -> AsyncIterator[FakeProgress]:
        if not isinstance(ask.grammar, Lark):
            async for progress in super().reply(ask):
                yield progress
            return
        self.grammars.append(ask.grammar)
        text = f"{self.kind}\nProgram:\ncoins = 3 * 4\nanswer = coins"
        if ask.grammar == KINDS:
            text = self.kind
        elif ask.grammar == sample_grammar("notes", "number", beginning("notes", "number")):
            text = f"{self.kind}\nNotes:\nAnswer: 12"
        yield FakeProgress(text, finished="stop")


@pytest.mark.parametrize(
    ("effort", "kind", "bridged"),
    [("low", "number", True), ("high", "number", True), ("low", "text", False), ("instant", "number", False)],
)
def test_with_an_effort_a_response_is_worked_out_behind_a_phrase(effort: Any, kind: str, bridged: bool) -> None:
    model = Reasoning()
    model.kind, said = kind, "How many coins does Ann have?"
    model.fork = lambda: model  # type: ignore[method-assign]
    planner = Planner(model, None, now=lambda: NOW)

    async def respond() -> Steps:
        ask = Ask([SYSTEM, Message("user", said)], effort=effort, spoken=True)
        return Steps([step async for step in planner.respond(ask)])

    steps = run_on_virtual_clock(respond)
    spoken = [decision.do.text for decision in steps.decisions if isinstance(decision.do, Say)]
    assert spoken == ([THINKING_PHRASE] if bridged else []) and steps.text == LOCAL
    assert ("answer is 12" in model.prompts[-1][-1].content) == bridged
