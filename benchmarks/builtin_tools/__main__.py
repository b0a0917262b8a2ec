"""Which built-in tool a real model calls, and with what result.

    python -m benchmarks.builtin_tools [--model NAME] [--part tune|report] [--every-tool]

Every question of questions.toml is asked in a conversation of its own, under the assistant's instructions and with all
built-in tools. What a call returned is printed, to be read: whether an argument is right is not judged here.
With `--every-tool`, all of them may be called, whatever the user says.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import asyncio
import tempfile
import tomllib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from rich.console import Console

from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.hub.catalog import QWEN_05B
from server.deploy.runtime import ModelOptions, load_engine
from server.tools.conversation_tools import ConversationTools
from server.tools.server_tools import ServerTools, ToolSettings
from voice.instructions import INSTRUCTIONS
from voice.language_model import Message, OfferedTools
from voice.tool_runs import ToolRuns
from voice.tools import ToolOutput


def spawn(work: Coroutine[Any, Any, ToolOutput]) -> asyncio.Task[ToolOutput]:
    """Start a task."""
    return asyncio.get_running_loop().create_task(work)


async def ask(engine: Engine, tools: ConversationTools, question: str, *, every_tool: bool) -> tuple[str, str, str]:
    """The function that is called and its arguments, and what it returned or, without a call, the response."""
    messages = [Message("system", INSTRUCTIONS), Message("user", question)]
    offered = ToolRuns(tools, spawn, lambda: None).offered(tools.declarations, messages)
    if every_tool:
        offered = OfferedTools(tuple(tool.name for tool in tools.declarations))
    name, arguments, text = "", "", ""
    stream = Conversation(engine).reply(messages, tools=tools.declarations, offered=offered, max_tokens=80)
    async for progress in stream:
        text += progress.committed
        for delta in progress.tool_calls:
            name, arguments = delta.name, arguments + delta.arguments
    if not name:
        return "", "", text
    try:
        return name, arguments, (await tools.call(name, arguments, question)).text
    except ValueError as error:
        return name, arguments, f"failed: {error}"


async def judge(
    engine: Engine, part: dict[str, Any], new_tools: Callable[[], ConversationTools], *, every_tool: bool
) -> None:
    """Ask, and print the figures."""
    right = quiet = 0
    for question, expected in part["need"]:
        name, arguments, result = await ask(engine, new_tools(), question, every_tool=every_tool)
        right += name == expected
        print(f"{' ' if name == expected else '!'} {question} → {name}{arguments} {result}")
    for question in part["none"]:
        name, arguments, result = await ask(engine, new_tools(), question, every_tool=every_tool)
        quiet += not name
        print(f"{'!' if name else ' '} {question} → {name}{arguments} {result!r}")
    print(f"the right tool: {right} of {len(part['need'])}")
    print(f"no call where none is needed: {quiet} of {len(part['none'])}")


def main() -> None:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=QWEN_05B.name)
    parser.add_argument("--part", choices=("tune", "report"), default="report")
    parser.add_argument("--every-tool", action="store_true")
    options = parser.parse_args()
    questions = tomllib.loads((Path(__file__).parent / "questions.toml").read_text(encoding="utf-8"))
    engine = load_engine(ModelOptions(options.model), Console(stderr=True))
    tools = ServerTools(ToolSettings(data=Path(tempfile.mkdtemp())))
    asyncio.run(judge(engine, questions[options.part], tools.local_conversation, every_tool=options.every_tool))
    engine.close()


if __name__ == "__main__":
    main()
