"""Which built-in tool a real model calls, and with what result.

    python -m lab.benchmarks.builtin_tools [--model NAME] [--part tune|report] [--every-tool | --sums]

Every question of questions.toml is asked in a conversation of its own, under the assistant's instructions and with all
built-in tools. What a call returned is printed, to be read: whether an argument is right is not judged here.
With `--every-tool`, all of them may be called, whatever the user says, and only the model decides. With `--sums`, the
questions are those of sums.toml, and are graded.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import asyncio
import tempfile
import tomllib
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from agent.instructions import INSTRUCTIONS
from agent.tool_runs import MakeCall, ToolRuns
from agent.tools.conversation_tools import ConversationTools
from agent.tools.protocol import ToolOutput
from agent.tools.server_tools import ServerTools, ToolSettings
from chat.types import Message, OfferedTools
from lab.bench.grading import Rule, grade
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.hub.catalog import QWEN_05B
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine


def spawn(work: Coroutine[Any, Any, ToolOutput]) -> asyncio.Task[ToolOutput]:
    """Start a task."""
    return asyncio.get_running_loop().create_task(work)


async def ask(
    engine: Engine, tools: ConversationTools, turns: Sequence[str], *, every_tool: bool = False
) -> tuple[str, str, str]:
    """The function that the last turn calls, its arguments, and what it returned; without a call, the response."""
    messages, runs = [Message("system", INSTRUCTIONS)], ToolRuns(tools, spawn, lambda: None)
    for turn in turns:
        messages.append(Message("user", turn))
        name, arguments, text = await respond(engine, tools, runs, messages, every_tool=every_tool)
        messages.append(Message("assistant", text))
    return name, arguments, text


async def respond(
    engine: Engine, tools: ConversationTools, runs: ToolRuns, messages: Sequence[Message], *, every_tool: bool
) -> tuple[str, str, str]:
    """As `ask`, for the response to `messages`."""
    said, declared = messages[-1].content, tools.declarations
    offered = OfferedTools(tuple(tool.name for tool in declared))
    if not every_tool:
        step = runs.next_step(messages, declared)
        if isinstance(step, MakeCall):
            output = await tools.call(step.name, step.arguments, step.said or said)
            return step.name, step.arguments, output.text
        offered = runs.offered(declared, messages)
        declared = runs.declared(declared, messages)
    name, arguments, text = "", "", ""
    stream = Conversation(engine).reply(messages, tools=declared, offered=offered, max_tokens=80)
    async for progress in stream:
        text += progress.committed
        for delta in progress.tool_calls:
            name, arguments = delta.name, arguments + delta.arguments
    if not name:
        return "", "", text
    try:
        return name, arguments, (await tools.call(name, arguments, said)).text
    except ValueError as error:
        return name, arguments, f"failed: {error}"


async def judge(
    engine: Engine, part: dict[str, Any], new_tools: Callable[[], ConversationTools], *, every_tool: bool
) -> None:
    """Ask, and print the figures."""
    right = quiet = 0
    for question, expected in part["need"]:
        name, arguments, result = await ask(engine, new_tools(), [question], every_tool=every_tool)
        right += name == expected
        print(f"{' ' if name == expected else '!'} {question} → {name}{arguments} {result}")
    for question in part["none"]:
        name, arguments, result = await ask(engine, new_tools(), [question], every_tool=every_tool)
        quiet += not name
        print(f"{'!' if name else ' '} {question} → {name}{arguments} {result!r}")
    print(f"the right tool: {right} of {len(part['need'])}")
    print(f"no call where none is needed: {quiet} of {len(part['none'])}")


async def judge_sums(engine: Engine, part: dict[str, Any], new_tools: Callable[[], ConversationTools]) -> None:
    """Ask the questions of sums.toml, grade the answers, and print the figures."""
    called = right = quiet = 0
    for case in part["need"]:
        rule = Rule(**{name: tuple(value) for name, value in case.items() if name != "ask"})
        turns = [case["ask"]] if isinstance(case["ask"], str) else case["ask"]
        name, _, result = await ask(engine, new_tools(), turns)
        passed = grade(result, rule).passed
        right, called = right + passed, called + bool(name)
        if not passed:
            print(f"! {' '.join(turns)} → {name} {result!r}")
    for question in part["none"]:
        turns = [question] if isinstance(question, str) else question
        name, arguments, result = await ask(engine, new_tools(), turns)
        quiet += not name
        if name:
            print(f"! {' '.join(turns)} → {name}{arguments} {result!r}")
    print(f"right: {right} of {len(part['need'])}, by {called} calls")
    print(f"no call where none is needed: {quiet} of {len(part['none'])}")


def main() -> None:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=QWEN_05B.name)
    parser.add_argument("--part", choices=("tune", "report"), default="report")
    parser.add_argument("--every-tool", action="store_true")
    parser.add_argument("--sums", action="store_true")
    options = parser.parse_args()
    file = "sums.toml" if options.sums else "questions.toml"
    part = tomllib.loads((Path(__file__).parent / file).read_text(encoding="utf-8"))[options.part]
    engine = load_engine(ModelOptions(model=options.model), Console(stderr=True))
    tools = ServerTools(ToolSettings(data=Path(tempfile.mkdtemp())))
    if options.sums:
        asyncio.run(judge_sums(engine, part, tools.local_conversation))
    else:
        asyncio.run(judge(engine, part, tools.local_conversation, every_tool=options.every_tool))
    engine.close()


if __name__ == "__main__":
    main()
