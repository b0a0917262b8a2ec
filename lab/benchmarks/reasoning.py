"""How many word problems are solved, and texts follow their constraints, at each reasoning effort, by the text API.

    python -m lab.benchmarks.reasoning --data FOLDER --set gsm8k-test --out FILE [--items 500] [--conditions high …]
        [--at-once 6] [--url http://HOST:PORT] [-- serve's options]

FOLDER has `gsm8k/train.jsonl` and `gsm8k/test.jsonl` of github.com/openai/grade-school-math, `bbh/navigate.json` and
`bbh/object_counting.json` of github.com/suzgunmirac/BIG-Bench-Hard, and in `ifeval` the package
`instruction_following_eval` of github.com/josejg/instruction_following_eval, which checks the texts of IFEval (its
packages: nltk langdetect immutabledict). Of the last three, the items at odd places are for tuning. Items are asked in
their order, each in all conditions, at temperature 0. What FILE has is not asked again: name another file once the
program has changed.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import math
import re
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean, median
from typing import Any

import httpx
from rich.console import Console
from rich.table import Table

from lab.report.own_server import own_server

_EFFORTS = ("low", "medium", "high")
CONDITIONS = ("terse", "free", *_EFFORTS)
"""In which a word problem is asked."""

TEXT_CONDITIONS = ("plain", *_EFFORTS)
"""In which a text is asked for: plainly, without an effort."""

_BASELINES = ("terse", "free", "plain")
"""What the efforts are compared with."""

_SETS = {
    "gsm8k-train": ("gsm8k/train.jsonl", slice(None)),
    "gsm8k-test": ("gsm8k/test.jsonl", slice(None)),
    "navigate-tune": ("bbh/navigate.json", slice(1, None, 2)),
    "navigate-report": ("bbh/navigate.json", slice(0, None, 2)),
    "object_counting-tune": ("bbh/object_counting.json", slice(1, None, 2)),
    "object_counting-report": ("bbh/object_counting.json", slice(0, None, 2)),
    "ifeval-tune": ("ifeval/instruction_following_eval/data/input_data.jsonl", slice(1, None, 2)),
    "ifeval-report": ("ifeval/instruction_following_eval/data/input_data.jsonl", slice(0, None, 2)),
}

_END = "End with a line `Answer: ` and the {what} alone."
_FORMS = {"number": "-?[0-9][0-9,]{0,12}(\\.[0-9]{1,4})?", "option": "(Yes|No)"}

_MAX_TOKENS = 640
"""Of free reasoning; few answers are longer."""

_MAX_TEXT_TOKENS = 800

_TIMEOUT_S = 3600.0
"""A machine that measures other things at the same time leaves this one little."""

_Z = 1.96


@dataclass(frozen=True)
class Item:
    """One problem.

    Attributes:
        kind: `number`, `option` or `text`, what is asked for.
        constraints: of a text, as IFEval's checks take them.
    """

    id: str
    question: str
    gold: str
    kind: str
    constraints: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """One answer.

    Attributes:
        tokens: all that were generated; `reasoning_tokens` of them before the answer.
        seconds: while others were asked at the same time.
    """

    id: str
    condition: str
    text: str
    right: bool
    prompt_tokens: int
    tokens: int
    reasoning_tokens: int
    seconds: float


def read_items(folder: Path, name: str) -> list[Item]:
    """The problems of a set. Raises OSError."""
    path, part = _SETS[name]
    text = (folder / path).read_text()
    if name.startswith("ifeval"):
        sys.path.append(str(folder / "ifeval"))
        rows = [json.loads(line) for line in text.splitlines()][part]
        return [Item(f"{name}-{row['key']}", row["prompt"], "", "text", row) for row in rows]
    if path.endswith(".jsonl"):
        rows = [json.loads(line) for line in text.splitlines()][part]
        pairs = [(row["question"], row["answer"].rpartition("####")[2].strip()) for row in rows]
    else:
        pairs = [(row["input"], row["target"]) for row in json.loads(text)["examples"][part]]
    kind = "option" if name.startswith("navigate") else "number"
    return [Item(f"{name}-{n}", question, gold, kind) for n, (question, gold) in enumerate(pairs)]


def is_right(item: Item, text: str) -> bool:
    """Whether a text follows its constraints, or the last number, or the last yes or no, of an answer is right."""
    if item.kind == "text":
        return follows_all(item.constraints, text)
    if item.kind == "option":
        found = re.findall(r"\b(yes|no)\b", text.lower())
        return bool(found) and found[-1] == item.gold.lower()
    numbers = re.findall(r"-?\d[\d,]*(?:\.\d+)?", text)
    return bool(numbers) and math.isclose(_number(numbers[-1]), _number(item.gold), abs_tol=0.005)


def follows_all(constraints: Mapping[str, Any], text: str) -> bool:
    """Whether a text follows all constraints of an IFEval prompt, by its own strict checks. Sentences are counted by
    its function `split_into_sentences`, and words split by NLTK's Treebank tokenizer: NLTK's models are not on PyPI."""
    utilities = importlib.import_module("instruction_following_eval.instructions_util")
    utilities.count_sentences = lambda text: len(utilities.split_into_sentences(text))
    utilities.nltk.word_tokenize = utilities.nltk.tokenize.TreebankWordTokenizer().tokenize
    evaluation = importlib.import_module("instruction_following_eval.evaluation")
    return bool(evaluation.test_instruction_following(dict(constraints), text).follow_all_instructions)


def request(item: Item, condition: str) -> dict[str, Any]:
    """The body of a request."""
    what = "number" if item.kind == "number" else "option"
    body: dict[str, Any] = {"model": "rejoinder", "temperature": 0, "max_tokens": _MAX_TOKENS}
    if item.kind == "text":
        body |= {"max_tokens": _MAX_TEXT_TOKENS, "messages": [{"role": "user", "content": item.question}]}
        return body if condition == "plain" else {**body, "reasoning_effort": condition}
    instruction = _END.format(what=what)
    if condition == "terse":
        instruction = f"Answer with the {what} only."
        form = {"type": "grammar", "grammar": {"syntax": "regex", "definition": _FORMS[item.kind]}}
        body["response_format"] = form
    elif condition == "free":
        instruction = f"Think step by step. {instruction}"
    else:
        body["reasoning_effort"] = condition
    return {**body, "messages": [{"role": "user", "content": f"{item.question}\n\n{instruction}"}]}


async def ask(client: httpx.AsyncClient, item: Item, condition: str) -> Result:
    """One answer. Raises httpx.HTTPError."""
    began = time.perf_counter()
    response = await client.post("/v1/chat/completions", json=request(item, condition))
    body = response.raise_for_status().json()
    text, usage = body["choices"][0]["message"]["content"] or "", body["usage"]
    return Result(
        item.id,
        condition,
        text,
        is_right(item, text),
        usage["prompt_tokens"],
        usage["completion_tokens"],
        usage["completion_tokens_details"]["reasoning_tokens"],
        round(time.perf_counter() - began, 2),
    )


async def ask_all(client: httpx.AsyncClient, wanted: Sequence[tuple[Item, str]], out: Path, at_once: int) -> None:
    """Ask, and append each result to the file."""
    limit = asyncio.Semaphore(at_once)

    async def one(item: Item, condition: str) -> None:
        async with limit:
            result = await ask(client, item, condition)
        with out.open("a") as file:
            file.write(json.dumps(asdict(result)) + "\n")

    await asyncio.gather(*(one(item, condition) for item, condition in wanted))


def read_results(out: Path) -> dict[tuple[str, str], Result]:
    """The results in a file, by item and condition."""
    lines = out.read_text().splitlines() if out.exists() else []
    results = [Result(**{"text": "", **json.loads(line)}) for line in lines]  # published ones have no texts
    return {(result.id, result.condition): result for result in results}


def tabulate(items: Sequence[Item], results: dict[tuple[str, str], Result]) -> Table:
    """The figures of each condition, of the items that have a result in all of them."""
    asked = [condition for condition in ("plain", *CONDITIONS) if any(key[1] == condition for key in results)]
    common = [item.id for item in items if all((item.id, condition) in results for condition in asked)]
    table = Table(
        "condition", "n", "right", *(f"more than {other}" for other in _BASELINES), "tokens", "of reasoning", "median s"
    )
    for condition in asked if common else ():
        of_condition = [results[name, condition] for name in common]
        low, high = interval(sum(result.right for result in of_condition), len(common))
        table.add_row(
            condition,
            str(len(common)),
            f"{mean(result.right for result in of_condition):.1%} ({low:.0%} to {high:.0%})",
            *(_difference(common, results, condition, other) for other in _BASELINES),
            f"{mean(result.tokens for result in of_condition):.0f}",
            f"{mean(result.reasoning_tokens for result in of_condition):.0f}",
            f"{median(result.seconds for result in of_condition):.1f}",
        )
    return table


def interval(right: int, n: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    share, spread = right / n, _Z**2 / n
    middle = (share + spread / 2) / (1 + spread)
    half = _Z * math.sqrt(share * (1 - share) / n + spread / (4 * n)) / (1 + spread)
    return middle - half, middle + half


def paired(differences: Sequence[int]) -> tuple[float, float]:
    """Mean of paired differences, and half of its 95 % interval."""
    average = mean(differences)
    variance = sum((difference - average) ** 2 for difference in differences) / max(1, len(differences) - 1)
    return average, _Z * math.sqrt(variance / len(differences))


def _difference(names: Sequence[str], results: dict[tuple[str, str], Result], condition: str, other: str) -> str:
    if condition == other or (names[0], other) not in results:
        return ""
    average, half = paired([results[name, condition].right - results[name, other].right for name in names])
    return f"{100 * average:+.1f} ± {100 * half:.1f}"


def _number(text: str) -> float:
    return float(text.replace(",", ""))


@asynccontextmanager
async def _server(url: str | None, options: Sequence[str]) -> AsyncIterator[str]:
    if url is not None:
        yield url
        return
    async with own_server(options) as address:
        yield address.replace("ws://", "http://").removesuffix("/v1/realtime")


async def _run(options: argparse.Namespace, wanted: Sequence[tuple[Item, str]]) -> None:
    async with (
        _server(options.url, options.server_options) as url,
        httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S, trust_env=False) as client,
    ):
        await ask_all(client, wanted, options.out, options.at_once)


def main(arguments: Sequence[str] | None = None) -> None:
    """Ask what has no result yet, and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the problems")
    parser.add_argument("--set", choices=_SETS, required=True)
    parser.add_argument("--out", type=Path, required=True, help="a file for the results, which a second run continues")
    parser.add_argument("--items", type=int, default=500, help="how many, from the first one")
    parser.add_argument("--conditions", nargs="+", choices=("plain", *CONDITIONS), help="all of the set's if not given")
    parser.add_argument("--at-once", type=int, default=6, help="requests at a time")
    parser.add_argument("--url", help="a server that runs already")
    parser.add_argument("server_options", nargs="*", help="options of `rejoinder serve`, after --")
    options = parser.parse_args(arguments)
    items = read_items(options.data, options.set)[: options.items]
    known = read_results(options.out)
    possible = TEXT_CONDITIONS if items[0].kind == "text" else CONDITIONS
    conditions = options.conditions or possible
    if wrong := set(conditions) - set(possible):
        parser.error(f"{', '.join(wrong)}: not a condition of this set ({', '.join(possible)})")
    wanted = [(item, name) for item in items for name in conditions if (item.id, name) not in known]
    if wanted:
        asyncio.run(_run(options, wanted))
    Console(width=140).print(tabulate(items, read_results(options.out)))


if __name__ == "__main__":
    main()
