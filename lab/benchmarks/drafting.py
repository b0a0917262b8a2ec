"""How many tokens per second drafts and forced tokens yield, by kind of prompt.

    python -m lab.benchmarks.drafting [PROMPTS] [MODEL] [--kind KIND …] [--adapter FILE]

PROMPTS of the evaluation of each kind are answered in three ways that take turns: one token per forward pass, with the
tokens that a grammar forces, and with drafts as well. JSON follows a schema, and tool calls are required, so both have
a grammar, as programs do. Prints tokens per second after the forward pass that reads the end of the prompt and yields
the first token, how much faster than one token per forward pass that is, and how many texts are identical.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from agent.instructions import INSTRUCTIONS
from agent.program.grammar import program_grammar
from agent.program.prompt import program_messages, with_missing
from chat.types import Ask, Message, Tool
from lab.benchmarks.planner.__main__ import load
from lab.convert.corpus import is_looping
from lab.convert.evaluate import EvaluationPrompt, evaluation_prompts
from model.decode import constraint
from model.decode.grammar import JSONSchema
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.hub.catalog import QWEN_05B
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine
from voice.clauses import ClauseSplitter

MAX_TOKENS = 64
KINDS = {"chat": "chat", "list": "list", "numbers": "numbers", "passage": "passage", "JSON": "json",
         "JSON with a schema": "json", "tool calls": "tool", "programs": "program"}  # fmt: skip
WAYS = ("one token", "forced", "drafts")
MAX_FORCED = constraint._MAX_FORCED


def _object(**properties: Any) -> JSONSchema:
    return JSONSchema({"type": "object", "properties": properties, "required": [*properties]})


_TEXT, _NUMBER = {"type": "string", "maxLength": 40}, {"type": "integer"}
SCHEMAS = (
    _object(name=_TEXT, category=_TEXT, year=_NUMBER, description=_TEXT),
    _object(title=_TEXT, items={"type": "array", "items": {"type": "object", "properties": {
        "label": _TEXT, "amount": _NUMBER}, "required": ["label", "amount"]}, "minItems": 2, "maxItems": 3}),
    _object(person={"type": "object", "properties": {"first_name": _TEXT, "last_name": _TEXT, "age": _NUMBER},
                    "required": ["first_name", "last_name", "age"]}, status={"enum": ["active", "closed"]}),
)  # fmt: skip


@dataclass(frozen=True)
class Response:
    """A response; its tokens are those after the first one, and its forward passes and seconds those after the first
    forward pass.

    Attributes:
        first_clause: seconds from the question to the first clause; None if it has no text, as a call.
    """

    text: str
    tokens: int
    steps: int
    seconds: float
    first_clause: float | None


def prompts_of(name: str, count: int) -> list[EvaluationPrompt]:
    """Up to `count` prompts of a kind (a value of `KINDS`). Programs are written for the planner's development half."""
    if name == "program":
        prompts = [EvaluationPrompt(name, request["say"]) for request in load("development", "requests")]
    else:
        prompts = [prompt for prompt in evaluation_prompts() if prompt.kind == name]
    return prompts[:: max(1, len(prompts) // count)][:count]


async def respond(engine: Engine, kind: str, prompt: EvaluationPrompt, way: str, number: int) -> Response:
    """Answer a prompt."""
    constraint._MAX_FORCED = 0 if way == "one token" else MAX_FORCED
    system = "You are a helpful assistant." if prompt.kind == "json" else INSTRUCTIONS
    messages = [Message("system", system), Message("user", prompt.text)]
    options: dict[str, Any] = {"max_tokens": MAX_TOKENS}
    if prompt.tools:
        functions = [tool["function"] for tool in prompt.tools]
        tools = [Tool(one["name"], one["description"], one["parameters"]) for one in functions]
        options |= {"tools": tools, "tool_choice": "required"}
    elif kind == "JSON with a schema":
        options["grammar"] = SCHEMAS[number % len(SCHEMAS)]
    elif kind == "programs":
        messages = program_messages((), (), prompt.text)
        options["grammar"] = program_grammar(with_missing(()))
    began, first_clause, splitter = time.perf_counter(), None, ClauseSplitter()
    times, text = [], ""
    async for progress in Conversation(engine, drafting=way == "drafts").reply(Ask(messages, **options)):
        times.append((time.perf_counter(), progress.step))
        text += progress.committed + "".join(call.arguments for call in progress.tool_calls)
        if first_clause is None and (splitter.push(progress.committed) or (progress.finished and splitter.flush())):
            first_clause = times[-1][0] - began
    (begin, step), (end, last), tokens = times[0], times[-1], progress.tokens
    return Response(text, tokens - 1, last - step, end - begin, first_clause)


def row(kind: str, results: Sequence[tuple[Response, ...]]) -> list[str]:
    """The figures of a kind: totals, and medians of the ratios of each prompt."""
    usable = [result for result in results if min(one.steps for one in result) > 0]
    speeds = [sum(one[way].tokens for one in usable) / sum(one[way].seconds for one in usable) for way in range(3)]
    per_prompt = [
        statistics.median(one[way].tokens * one[0].seconds / one[way].seconds / one[0].tokens for one in usable)
        for way in (1, 2)
    ]
    per_forward = [sum(one[way].tokens for one in usable) / sum(one[way].steps for one in usable) for way in (1, 2)]
    identical = sum(len({one.text for one in result}) == 1 for result in results)
    return [
        kind, *(f"{speed:.1f}" for speed in speeds), f"{speeds[1] / speeds[0]:.2f}", f"{speeds[2] / speeds[0]:.2f}",
        f"{per_prompt[0]:.2f}", f"{per_prompt[1]:.2f}", f"{per_forward[0]:.2f}", f"{per_forward[1]:.2f}",
        f"{identical} of {len(results)}",
    ]  # fmt: skip


async def run(engine: Engine, count: int, kinds: Sequence[str]) -> Table:
    """Answer the prompts of some kinds."""
    table = Table("kind", *(f"tokens/s, {way}" for way in WAYS), "times, forced", "times, drafts",
                  "median, forced", "median, drafts", "tokens per pass, forced", "drafts", "identical")  # fmt: skip
    for kind in kinds:
        results = []
        for number, prompt in enumerate(prompts_of(KINDS[kind], count)):
            result = tuple([await respond(engine, kind, prompt, way, number) for way in WAYS])
            if not is_looping(engine.model.tokenizer.encode(result[0].text)):
                results.append(result)
        table.add_row(*row(kind, results))
    return table


def main() -> None:
    """Run with the arguments of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("prompts", nargs="?", type=int, default=8)
    parser.add_argument("model", nargs="?", default=QWEN_05B.name)
    parser.add_argument("--kind", action="append", choices=KINDS, help="only these kinds")
    parser.add_argument("--adapter", type=Path)
    arguments = parser.parse_args()
    engine = load_engine(ModelOptions(model=arguments.model, adapter=arguments.adapter or "auto"), Console(stderr=True))
    try:
        console = Console(width=180)
        console.print(asyncio.run(run(engine, arguments.prompts, arguments.kind or [*KINDS])))
        console.print(f"accepted: {', '.join(f'{rate:.2f}' for rate in engine.draft_length.acceptance)}")
    finally:
        engine.close()


if __name__ == "__main__":
    main()
