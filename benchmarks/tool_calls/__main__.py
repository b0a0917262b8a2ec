"""Tool calls with a real model.

    python -m benchmarks.tool_calls [--model NAME] [--part tune|report] [--scores]

Every question of questions.toml is asked under the assistant's instructions. The first forward pass decides whether
the response is a call. That is recorded, and a call is then made exactly if the question needs one, so that function
and arguments are judged apart from the decision. `--scores` lists the score of every decision: the threshold in
model/engine/response_form.py was chosen on the part `tune`.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import asyncio
import json
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from torch import Tensor

from model.checkpoint.chat_template import TextMessage
from model.decode.tool_calls import FunctionTool
from model.engine import response_form
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.response_form import CallDecision
from model.hub.catalog import QWEN_05B
from server.deploy.runtime import ModelOptions, load_engine
from voice.instructions import INSTRUCTIONS


@dataclass(frozen=True)
class Question:
    """A question, the tools on offer, the call that answers it and what that returns; no call where none is needed."""

    text: str
    tools: tuple[FunctionTool, ...]
    call: str | None = None
    arguments: dict[str, list[Any]] = field(default_factory=dict)
    output: str = ""

    @property
    def messages(self) -> list[TextMessage]:
        """The prompt."""
        return [TextMessage("system", INSTRUCTIONS), TextMessage("user", self.text)]

    def accepts(self, arguments: dict[str, Any]) -> bool:
        """Whether the arguments are right. Those that the question does not fix may be anything."""
        return all(_plain(arguments.get(name)) in map(_plain, right) for name, right in self.arguments.items())


@dataclass(frozen=True)
class FunctionCall:
    """A call in the history."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Result:
    """What came of one question.

    Attributes:
        score: log probability of a call.
        called: whether the decision was to call.
        name, arguments: of the call that was required; None if no call is needed.
        tokens, steps, seconds: of that call.
        score_after_output: log probability of another call, once the output was read.
        called_again: whether the decision was to call again.
        answer: the response to the output.
    """

    score: float
    called: bool
    name: str | None = None
    arguments: dict[str, Any] | None = None
    tokens: int = 0
    steps: int = 0
    seconds: float = 0.0
    score_after_output: float = 0.0
    called_again: bool = False
    answer: str = ""


def questions(part: str) -> list[Question]:
    """The questions of one part."""
    data = tomllib.loads((Path(__file__).parent / "questions.toml").read_text(encoding="utf-8"))
    tools = {
        name: FunctionTool(name, entry["description"], json.loads(entry["parameters"]))
        for name, entry in data["tools"].items()
    }
    return [
        Question(
            entry["question"],
            tuple(tools[name] for name in entry["tools"]),
            entry.get("call"),
            entry.get("arguments", {}),
            data["tools"][entry["call"]]["output"] if "call" in entry else "",
        )
        for entry in data[part]
    ]


class RecordedDecision(CallDecision):
    """Records the score and what would be decided, and then decides as the question needs it."""

    call_needed = False
    last_score = 0.0
    last_decision = False

    def __call__(self, logits: Tensor) -> bool:
        RecordedDecision.last_score, RecordedDecision.last_decision = self.score(logits), super().__call__(logits)
        return self.call_needed


async def ask(engine: Engine, question: Question) -> Result:
    """Ask, with the call if one is needed; then show its output, and see whether another call would follow."""
    conversation, name, arguments, began = Conversation(engine), "", "", time.monotonic()
    RecordedDecision.call_needed = question.call is not None
    async for progress in conversation.reply(
        question.messages, tools=question.tools, max_tokens=200 if question.call else 1
    ):
        for delta in progress.tool_calls:
            name, arguments = delta.name, arguments + delta.arguments
    seconds = time.monotonic() - began
    score, called = RecordedDecision.last_score, RecordedDecision.last_decision
    if question.call is None:
        return Result(score, called)
    parsed = json.loads(arguments) if progress.finished == "tool_calls" else None
    history = [
        *question.messages,
        TextMessage("assistant", "", (FunctionCall("call_1", name, arguments),)),
        TextMessage("tool", question.output, tool_call_id="call_1"),
    ]
    RecordedDecision.call_needed = False
    answer = ""
    async for reading in conversation.reply(history, tools=question.tools, max_tokens=30):
        answer += reading.committed
    after, again = RecordedDecision.last_score, RecordedDecision.last_decision
    return Result(score, called, name, parsed, progress.tokens, progress.step, seconds, after, again, answer)


def _plain(value: Any) -> Any:
    """A value as it is compared: without case, spaces around it, and full stops at its end."""
    if isinstance(value, str):
        return value.strip().rstrip(".!").casefold()
    return [_plain(part) for part in value] if isinstance(value, list) else value


def report(asked: list[Question], results: list[Result]) -> str:
    """The figures, one per line."""
    pairs = list(zip(asked, results, strict=True))
    needed = [(question, result) for question, result in pairs if question.call is not None]
    unneeded = [result for question, result in pairs if question.call is None]
    named = [(question, result) for question, result in needed if result.name == question.call]
    right = [result for question, result in named if question.accepts(result.arguments or {})]
    valid = sum(result.arguments is not None for _, result in needed)
    steps = sum(result.steps for _, result in needed)
    return "\n".join(
        (
            f"no call where none is needed: {sum(not result.called for result in unneeded)} of {len(unneeded)}",
            f"a call where one is needed: {sum(result.called for _, result in needed)} of {len(needed)}",
            f"right function, if a call is made: {len(named)} of {len(needed)}",
            f"right function and arguments, if a call is made: {len(right)} of {len(needed)}",
            f"all right, decision included: {sum(result.called for result in right)} of {len(needed)}",
            f"no second call once the output was read: {sum(not result.called_again for _, result in needed)} of "
            f"{len(needed)}",
            f"arguments valid: {valid} of {len(needed)}",
            f"tokens per forward pass: {sum(result.tokens for _, result in needed) / steps:.2f}",
            f"forward passes per call, after the prompt: {steps / len(needed):.1f}",
        )
    )


def main() -> None:
    """Ask, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=QWEN_05B.name)
    parser.add_argument("--part", choices=("tune", "report"), default="report")
    parser.add_argument("--scores", action="store_true")
    options = parser.parse_args()
    engine = load_engine(ModelOptions(options.model), Console(stderr=True))
    response_form.CallDecision = RecordedDecision  # type: ignore[misc]
    asked = questions(options.part)
    results = [asyncio.run(ask(engine, question)) for question in asked]
    engine.close()
    for question, result in zip(asked, results, strict=True):
        wrong = question.call is not None and not (
            result.name == question.call and question.accepts(result.arguments or {})
        )
        if options.scores or wrong or result.called != (question.call is not None):
            made = f" → {result.name} {result.arguments}" if question.call else ""
            print(f"{result.score:7.2f} {question.call or '-'}: {question.text}{made}")
            if options.scores and question.call:
                print(f"        {result.score_after_output:7.2f} {question.output} → {result.answer!r}")
    print(report(asked, results))


if __name__ == "__main__":
    main()
