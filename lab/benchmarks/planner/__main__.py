"""Whether the assistant with its tools says what is right: metamorphic pairs, closed forms, requests, everyday talk,
and questions of all kinds.

    python -m lab.benchmarks.planner [--model NAME] [--part development|reported] [--sets pairs closed …] [--show]

The sets were written by somebody who had not seen the assistant's rules, and were split before anybody looked:
`development` may be looked at and tuned with, `reported` is for figures only, and `--show` refuses to show it. An item
is asked in a conversation of its own, on Tuesday, 24 November 2026, 10:20 in Berlin. A pair is two questions with the
same words and different answers. A tool is opened without need where an everyday sentence leads to a call, or to the
words of a program.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import asyncio
import json
import statistics
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from rich.console import Console

from agent.instructions import INSTRUCTIONS
from agent.plan import Call, Decision, Say
from agent.planner import Planner
from agent.tool_runs import ToolRuns
from agent.tools.protocol import ToolOutput
from agent.tools.server_tools import ServerTools, ToolSettings
from agent.tools.weather import WeatherSettings
from chat.types import Ask, Message, ToolCall
from lab.benchmarks.planner.grading import is_accepted, says, says_wrong
from lab.benchmarks.planner.requests import CHANGES, HOME, is_fulfilled
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.hub.catalog import QWEN_15B
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine

HERE = Path(__file__).parent
NOW = datetime(2026, 11, 24, 10, 20, tzinfo=ZoneInfo("Europe/Berlin"))
SETS = ("pairs", "closed", "requests", "everyday", "answers")

_MAX_STEPS, _MAX_TOKENS = 4, 80


@dataclass(frozen=True)
class Answer:
    """What the assistant did.

    Attributes:
        policies: what decided, in this order.
        seconds: until it had said or done everything.
    """

    text: str
    calls: tuple[tuple[str, Mapping[str, Any]], ...]
    policies: tuple[str, ...]
    seconds: float

    @property
    def decided_by(self) -> str:
        """What decided on the answer."""
        return next((policy for policy in reversed(self.policies) if policy != "output"), "")


def _now() -> datetime:
    return NOW


async def ask(engine: Engine, tools: ServerTools, said: str) -> Answer:
    """Ask in a conversation of its own. Calls run, but for those of services."""
    own, started = tools.local_conversation(), time.monotonic()
    runs = ToolRuns(own, _spawn, lambda: None)
    planner = Planner(Conversation(engine), runs, now=_now)
    messages = [Message("system", INSTRUCTIONS), Message("user", said)]
    text, calls, policies = "", list[tuple[str, Mapping[str, Any]]](), list[str]()
    for number in range(_MAX_STEPS):
        made: list[ToolCall] = []
        asked = Ask(messages, tools=own.declarations, max_tokens=_MAX_TOKENS, spoken=True, assistant=True)
        async for step in planner.respond(asked, first=not number):
            if isinstance(step, Decision):
                policies.append(step.policy)
                match step.do:
                    case Say(text=said_now):
                        text += said_now
                    case Call(calls=planned):
                        made += [
                            ToolCall(f"call-{number}-{n}", one.name, one.arguments) for n, one in enumerate(planned)
                        ]
            else:
                text += step.committed  # type: ignore[union-attr]  # there is no bigger model
                for delta in step.tool_calls:  # type: ignore[union-attr]
                    made = made or [ToolCall(f"call-{number}", delta.name, "")]
                    made[-1] = ToolCall(made[-1].id, made[-1].name, made[-1].arguments + delta.arguments)
        if not made:
            break
        messages.append(Message("assistant", "", tuple(made)))
        for call in made:
            output = await runs.start(call, messages[:-1], own.declarations)
            if not output.failed or call.name not in CHANGES:  # what failed has changed nothing
                calls.append((call.name, json.loads(call.arguments)))
            messages.append(Message("tool", output.text, tool_call_id=call.id))
    own.close()
    return Answer(" ".join(text.split()), tuple(calls), tuple(policies), time.monotonic() - started)


def _spawn(work: Coroutine[Any, Any, ToolOutput]) -> asyncio.Task[ToolOutput]:
    return asyncio.get_running_loop().create_task(work)


def load(part: str, name: str) -> list[dict[str, Any]]:
    """The items of a set; of a pair, both questions."""
    entries = tomllib.loads((HERE / part / f"{name}.toml").read_text(encoding="utf-8"))
    [items] = entries.values()
    if name != "pairs":
        return list(items)
    return [{"kind": pair["kind"], "pair": pair["id"], **pair[side]} for pair in items for side in ("a", "b")]


def is_right(name: str, item: Mapping[str, Any], answer: Answer) -> bool:
    """Whether an answer is."""
    match name:
        case "everyday":
            return not answer.calls and answer.decided_by != "program"
        case "answers":
            return is_accepted(answer.text, item)
        case "requests":
            return is_fulfilled(item, answer.text, answer.calls, NOW)
    return says(answer.text, item["accept"])


async def judge(engine: Engine, tools: ServerTools, part: str, name: str, *, show: bool) -> None:
    """Ask the items of a set, and print the figures."""
    items, kinds = load(part, name), defaultdict[str, list[bool]](list)
    by_policy, pairs = defaultdict[str, list[bool]](list), defaultdict[str, list[bool]](list)
    wrong_by_rule, seconds = 0, defaultdict[str, list[float]](list)
    for item in items:
        said = item.get("ask") or item["say"]
        answer = await ask(engine, tools, said)
        right = is_right(name, item, answer)
        kinds[item.get("kind") or item["category"]].append(right)
        by_policy[answer.decided_by].append(right)
        seconds[answer.decided_by].append(answer.seconds)
        pairs[item.get("pair", "")].append(right)
        if name in ("pairs", "closed") and answer.decided_by == "closed form":
            wrong_by_rule += says_wrong(answer.text, item["accept"])
        if show and not right:
            wanted = item.get("accept") or item.get("accept_any") or item.get("expect") or ""
            print(f"! {said} → {list(answer.calls)} {answer.text!r} ({answer.decided_by}; right: {wanted})", flush=True)
    total = [right for each in kinds.values() for right in each]
    print(f"\n{name}, {part}: {sum(total)} of {len(total)} right ({100 * sum(total) / len(total):.0f} %)")
    print("  kinds: " + ", ".join(f"{kind} {sum(each)}/{len(each)}" for kind, each in kinds.items()))
    for policy, each in by_policy.items():
        middle = statistics.median(seconds[policy])
        print(f"  decided by {policy or 'nobody'}: {sum(each)} of {len(each)} right, median {middle:.2f} s")
    if name == "pairs":
        both = Counter(all(each) for each in pairs.values())
        print(f"  both questions of a pair: {both[True]} of {len(pairs)}")
    if name in ("pairs", "closed"):
        print(f"  wrong values said by a rule: {wrong_by_rule}", flush=True)


async def run(options: argparse.Namespace) -> None:
    """Judge the sets."""
    engine = load_engine(ModelOptions(model=options.model), Console(stderr=True))
    with tempfile.TemporaryDirectory() as folder:
        services = ToolSettings(
            data=Path(folder), weather=WeatherSettings("http://127.0.0.1:9", home=HOME), search_url="http://127.0.0.1:9"
        )
        tools = ServerTools(services, now=_now)
        for name in options.sets:
            await judge(engine, tools, options.part, name, show=options.show)
    engine.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=QWEN_15B.name)
    parser.add_argument("--part", choices=("development", "reported"), default="reported")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--show", action="store_true", help="print what went wrong")
    options = parser.parse_args(arguments)
    if options.show and options.part == "reported":
        parser.error("the reported part is for figures: show what goes wrong in --part development")
    asyncio.run(run(options))


if __name__ == "__main__":
    main()
