"""Asks the sets of this folder through the pipeline without recognition and synthesis; grades what rules can grade.

    python -m lab.benchmarks.conversation --out FILE [--model NAME] [--part development|reported] [--sets …] [--show]

The sets were written by people who had not seen the assistant's code, and were split before anybody looked:
`development` may be looked at and tuned with, `reported` is for figures only, and `--show` refuses to show it. FILE
gets all answers, for people to grade what rules cannot; what it has is not asked again.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from lab.benchmarks.conversation.asking import AskTurns, Said, asking
from lab.benchmarks.conversation.grading import dialogue_errors, faults_for_the_ear, is_right, is_too_long
from model.engine.engine import Engine
from model.hub.catalog import QWEN_15B
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine

HERE = Path(__file__).parent
SETS = ("everyday", "declined", "look_alikes", "questions", "dialogues", "dangers", "harmless")

_AT_A_TIME = 4


def load(part: str, name: str) -> list[dict[str, Any]]:
    """The items of a set."""
    return [json.loads(line) for line in (HERE / part / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def turns_of(item: dict[str, Any]) -> list[str]:
    """What the user says."""
    return [turn["say"] for turn in item["turns"]] if "turns" in item else [item["say"]]


Answers = dict[tuple[str, str], list[Said]]
"""By the name of the set and the id of the item."""


def read_answers(file: Path) -> Answers:
    """What a file has."""
    answers: Answers = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        row = json.loads(line)
        answers[row["set"], row["id"]] = [Said(**{**one, "spoken": tuple(one["spoken"])}) for one in row["answers"]]
    return answers


async def ask_all(engine: Engine, sets: dict[str, list[dict[str, Any]]], answers: Answers, file: TextIO) -> None:
    """Ask what has no answer yet."""
    pending = [(name, item) for name, items in sets.items() for item in items if (name, item["id"]) not in answers]
    limit = asyncio.Semaphore(_AT_A_TIME)

    async def ask(ask_turns: AskTurns, name: str, item: dict[str, Any]) -> None:
        async with limit:
            said = answers[name, item["id"]] = list(await ask_turns(item.get("before", ()), turns_of(item)))
        row = {"set": name, "id": item["id"], "said": turns_of(item), "answers": [asdict(one) for one in said]}
        file.write(json.dumps(row, ensure_ascii=False) + "\n")
        file.flush()

    async with asking(engine) as ask_turns, asyncio.TaskGroup() as group:
        for name, item in pending:
            group.create_task(ask(ask_turns, name, item))


def judge(name: str, items: Sequence[dict[str, Any]], answers: Answers, *, show: bool) -> None:
    """Print the figures of a set."""
    kinds = defaultdict[str, list[bool]](list)
    faults, long = 0, 0
    for item in items:
        said, errors = answers[name, item["id"]], list[str]()
        if name == "dialogues":
            errors = dialogue_errors(item["turns"], [one.text for one in said])
            right = not errors
        else:
            right = is_right(name, item, said[0])
        kinds[item["kind"]].append(right)
        found = [fault for one in said for fault in faults_for_the_ear(one.spoken)]
        faults += bool(found)
        long += any(is_too_long(item, one.text) for one in said)
        if show and (not right or found):
            for words, one in zip(turns_of(item), said, strict=True):
                print(f"{'! ' if not right else '  '}{words} → {one.text!r} ({', '.join(one.policies)})")
            if found or errors:
                print(f"    {errors} {found} {[one.spoken for one in said] if found else ''}", flush=True)
    total = [right for each in kinds.values() for right in each]
    print(f"{name}: {sum(total)} of {len(total)} ({100 * sum(total) / len(total):.0f} %); ", end="")
    print(", ".join(f"{kind} {sum(each)}/{len(each)}" for kind, each in kinds.items()), end="")
    print(f"; with faults for the ear: {faults}, too long: {long}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options, ask and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=QWEN_15B.name)
    parser.add_argument("--part", choices=("development", "reported"), default="reported")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--out", type=Path, required=True, help="answers; one file for each part, model and version")
    parser.add_argument("--show", action="store_true", help="print what went wrong")
    options = parser.parse_args(arguments)
    if options.show and options.part == "reported":
        parser.error("the reported part is for figures: show what goes wrong in --part development")
    sets = {name: load(options.part, name) for name in options.sets}
    engine = load_engine(ModelOptions(model=options.model), Console(stderr=True))
    answers = read_answers(options.out)
    try:
        with options.out.open("a", encoding="utf-8") as file:
            asyncio.run(ask_all(engine, sets, answers, file))
    finally:
        engine.close()
    for name, items in sets.items():
        judge(name, items, answers, show=options.show)


if __name__ == "__main__":
    main()
