"""`rejoinder bench tools`: how well the language model calls tools. It asks the cases of tool_cases.py as a voice
session does, without audio; the tools are declared and chosen by the model, but nothing runs."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from agent.instructions import INSTRUCTIONS
from agent.language_model import LanguageModel
from agent.tools.tool_selection import MAX_TOOLS, ToolSelection
from chat.types import Ask, Message, Tool
from lab.bench.answers import Score as Share
from lab.bench.call_matching import mistake, valid
from lab.bench.grading import declines
from lab.bench.tool_cases import CATEGORIES, Decision, ToolCase, all_tools
from model.engine.conversation import Conversation
from server.serving.model_choice import resolve_model
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine

_MAX_TOKENS = 200
"""Longer calls count as wrong. None of the cases needs half of it."""

_TEXT_TOKENS, _TALK_TOKENS = 4, 40
"""Text is read so far: enough to see that it is text, and of ordinary talk, that it declines nothing."""


@dataclass(frozen=True)
class Response:
    """What the model did at one decision.

    Attributes:
        calls: name and arguments (JSON text) of each.
        text: the beginning of a response without calls.
        seconds: from the request to the last token that was read.
        mistake: empty if it was right.
    """

    calls: tuple[tuple[str, str], ...]
    text: str
    seconds: float
    mistake: str
    valid: bool


@dataclass(frozen=True)
class Result:
    """The responses to one case."""

    case: str
    category: str
    responses: tuple[Response, ...]

    @property
    def right(self) -> bool:
        """Whether all of them are right."""
        return not any(response.mistake for response in self.responses)


def run(
    model_options: ModelOptions,
    cases: Sequence[ToolCase],
    console: Console,
    results: Path | None = None,
    every_tool: bool = False,
    on_result: Callable[[], None] = lambda: None,
) -> list[Result]:
    """Ask the cases. Raises what loading a model raises, and ValueError if `results` cannot be read.

    Args:
        results: a file of JSON lines. Each result is appended to it, and cases that it has are not asked again.
        every_tool: offer the tools of all cases each time.
        on_result: called after each case.
    """
    done = {} if results is None else read_results(results)
    engine = None
    try:
        for case in cases:
            if case.name not in done:
                engine = engine or load_engine(resolve_model(model_options), console)
                tools = all_tools(cases) if every_tool else case.tools
                result = asyncio.run(ask(Conversation(engine), case, tools))
                done[case.name] = result
                if results is not None:
                    with results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(result)) + "\n")
            on_result()
    finally:
        if engine is not None:
            engine.close()
    return [done[case.name] for case in cases]


def read_results(path: Path) -> dict[str, Result]:
    """The results in a file of JSON lines, by case; none if there is no such file. Raises ValueError."""
    if not path.exists():
        return {}
    found = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            fields = json.loads(line)
            responses = tuple(
                Response(**{**response, "calls": tuple((name, arguments) for name, arguments in response["calls"])})
                for response in fields.pop("responses")
            )
            found[fields["case"]] = Result(**fields, responses=responses)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"line {number} of {path} is not a result of `bench tools`: {error}") from None
    return found


async def ask(language_model: LanguageModel, case: ToolCase, tools: Sequence[Tool]) -> Result:
    """Every decision of a case, each after what would have been right before it."""
    responses = [await _respond(language_model, case, decision, tools) for decision in case.decisions]
    return Result(case.name, case.category, tuple(responses))


async def _respond(
    language_model: LanguageModel, case: ToolCase, decision: Decision, tools: Sequence[Tool]
) -> Response:
    began, text, finished = time.monotonic(), "", None
    calls: dict[int, list[str]] = {}
    stream = language_model.reply(
        Ask(
            [Message("system", INSTRUCTIONS), *decision.messages],
            max_tokens=_MAX_TOKENS,
            tools=tools,
            spoken=True,
            assistant=True,
            parallel_tool_calls=True,
        )
    )
    enough, failure = _TALK_TOKENS if case.category == "talk" else _TEXT_TOKENS, ""
    try:
        async with aclosing(stream):  # type: ignore[type-var]
            async for progress in stream:
                text, finished = text + progress.committed, progress.finished
                for delta in progress.tool_calls:
                    call = calls.setdefault(delta.index, [delta.name, ""])
                    call[1] += delta.arguments
                if not calls and text.strip() and progress.tokens >= enough:
                    break
    except (RuntimeError, ValueError) as error:
        failure = f"it failed: {error}"
    made = tuple((name, arguments) for name, arguments in calls.values())
    wrong = failure or mistake(made, decision.expected, tools)
    if finished == "length" and made:
        wrong = f"no end after {_MAX_TOKENS} tokens"
    elif case.category == "talk" and declines(text):
        wrong = wrong or "it declines to talk"
    seconds = round(time.monotonic() - began, 3)
    return Response(made, text.strip(), seconds, wrong, all(valid(*call, tools) for call in made))


@dataclass(frozen=True)
class Score:
    """The figures of a category.

    Attributes:
        right: cases of which every response is right.
        responses, decided: responses, and those that were a call exactly where one is needed.
        calls, valid: responses with calls, and those of which all arguments match their schema.
        milliseconds: of a response, median.
    """

    cases: int
    right: int
    responses: int
    decided: int
    calls: int
    valid: int
    milliseconds: int

    @property
    def share(self) -> Share:
        """For percentages and their interval."""
        return Share(self.cases, self.right, self.right, self.right)


def scores(results: Sequence[Result]) -> dict[str, Score]:
    """The score of each category that has cases, and of `all`."""
    found = {
        category: [result for result in results if result.category == category] for category in (*CATEGORIES, "all")
    }
    found["all"] = list(results)
    return {category: _score(chosen) for category, chosen in found.items() if chosen}


def _score(results: Sequence[Result]) -> Score:
    responses = [response for result in results for response in result.responses]
    times = sorted(response.seconds for response in responses)
    calls = [response for response in responses if response.calls]
    undecided = ("no call", "a call that is not needed")
    return Score(
        len(results),
        sum(result.right for result in results),
        len(responses),
        sum(response.mistake not in undecided for response in responses),
        len(calls),
        sum(response.valid for response in calls),
        round(1000 * times[len(times) // 2]),
    )


def retrieval(cases: Sequence[ToolCase]) -> tuple[int, int]:
    """Of the requests that need calls, and how many of these have all of their tools among those that are selected
    from the tools of all cases. No model is asked."""
    tools = all_tools(cases)
    needed = [case for case in cases if case.category in ("simple", "multiple", "parallel")]
    if len(tools) <= MAX_TOOLS:
        return len(needed), len(needed)
    found = 0
    for case in needed:
        selected = {tool.name for tool in ToolSelection().select(tools, case.decisions[0].messages)}
        found += {call.name for call in case.decisions[0].expected} <= selected
    return len(needed), found


def as_json(model: str, half: str, cases: Sequence[ToolCase], results: Sequence[Result]) -> dict[str, Any]:
    """The output of `--json`: the scores, and every case with the model's responses."""
    needed, found = retrieval(cases)
    return {
        "model": model,
        "half": half,
        "scores": {
            name: {**asdict(score), "percent": round(score.share.percent, 1)} for name, score in scores(results).items()
        },
        "retrieval": {"tools": len(all_tools(cases)), "requests": needed, "found": found},
        "results": [{**asdict(result), "right": result.right} for result in results],
    }


def show(title: str, cases: Sequence[ToolCase], results: Sequence[Result], console: Console) -> None:
    """Print the scores as a table."""
    columns = ("category", "cases", "right", "%", "95 % interval", "call or text", "arguments valid", "median ms")
    table = Table(*columns, title=title)
    for name, score in scores(results).items():
        low, high = score.share.interval
        table.add_row(
            name,
            str(score.cases),
            str(score.right),
            f"{score.share.percent:.0f}",
            f"{low:.0f} to {high:.0f}",
            f"{score.decided} of {score.responses}",
            f"{score.valid} of {score.calls}",
            str(score.milliseconds),
        )
    console.print(table)
    needed, found = retrieval(cases)
    if needed:
        console.print(
            f"selected from {len(all_tools(cases))} tools: all that are needed for {found} of {needed} requests",
            highlight=False,
        )


def failures(cases: Sequence[ToolCase], results: Sequence[Result]) -> Iterator[str]:
    """A line for each response that is wrong."""
    for case, result in zip(cases, results, strict=True):
        for decision, response in zip(case.decisions, result.responses, strict=True):
            if response.mistake:
                made = ", ".join(f"{name} {arguments}" for name, arguments in response.calls)
                last = decision.messages[-1]
                yield f"{case.name}: {last.content} → {made or repr(response.text)}: {response.mistake}"
