"""Short classifications in bulk, as batches: items a second, how many are right, and what they cost by `usage`.

    python -m lab.benchmarks.bulk [--model NAME] [--items 10000] [--kinds decide,schema]

The items are generated: messages of customers, each with the department that it is for. A batch of them is answered by
`/v1/decide`, and another by `/v1/chat/completions` with a schema that has the departments as an `enum`. Nothing else
runs, so this is the most that bulk work gets.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from agent.background_tasks import cancel
from model.hub.catalog import QWEN_05B
from server.access.admission import Admission
from server.access.prices import PriceList
from server.batch_store import OPEN, BatchStore
from server.batches.runner import BatchRunner
from server.chat_completions.chat import ChatCompletions
from server.chat_completions.decision import Decisions
from server.chat_completions.reasoning import Reasoning
from server.chat_completions.requests import RequestLimit
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine

_INSTRUCTIONS = "You sort messages of customers. Say which department a message is for."

_MESSAGES = {
    "billing": (
        "{name} here: {month}'s invoice is {amount} euros too high.", "I was charged twice for order {number}.",
        "Please send me a receipt for order {number}.", "My card was billed in {month}, but I paid.",
    ),
    "delivery": (
        "Where is my parcel {number}? It should have come in {month}.", "Order {number} was left at the wrong house.",
        "{name} here: the courier never rang, and parcel {number} is gone.", "Can order {number} come a day later?",
    ),
    "technical support": (
        "My router {number} keeps losing the connection.", "The app crashes since the update in {month}.",
        "{name} here: error {number} appears when I start the device.", "The screen of my model {number} stays black.",
    ),
    "cancellation": (
        "I want to end my contract {number} in {month}.", "Please cancel my subscription, customer {number}.",
        "{name} here: I move, so I cancel contract {number}.", "Stop my membership {number} by the end of {month}.",
    ),
}  # fmt: skip

_NAMES = "Anna Ben Carla David Elif Fred Gita Hugo Ines Jan Kira Lars Mona Nils Olga Paul".split()
_MONTHS = "January February March April May June July August September October November December".split()


def items(count: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Messages and the departments that they are for."""
    draw = random.Random(seed)
    for _ in range(count):
        department = draw.choice(list(_MESSAGES))
        message = draw.choice(_MESSAGES[department])
        words = {"name": draw.choice(_NAMES), "month": draw.choice(_MONTHS)}
        yield message.format(**words, amount=draw.randint(5, 900), number=draw.randint(10_000, 99_999)), department


def request(kind: str, message: str) -> tuple[str, dict[str, Any]]:
    """The endpoint and the body of a classification."""
    if kind == "decide":
        body = {"type": "choice", "choices": list(_MESSAGES), "instructions": _INSTRUCTIONS, "input": message}
        return "/v1/decide", body
    schema = {"type": "object", "properties": {"department": {"enum": list(_MESSAGES)}}, "required": ["department"]}
    wanted = {"type": "json_schema", "json_schema": {"name": "department", "schema": schema}}
    instructions = f"{_INSTRUCTIONS} The departments are {', '.join(_MESSAGES)}."
    messages = [{"role": "system", "content": instructions}, {"role": "user", "content": message}]
    return "/v1/chat/completions", {"messages": messages, "response_format": wanted}


def department(kind: str, body: Any) -> str:
    """What an answer says."""
    if kind == "decide":
        return str(body["value"])
    return str(json.loads(body["choices"][0]["message"]["content"])["department"])


async def classify(store: BatchStore, runner: BatchRunner, kind: str, messages: list[str]) -> tuple[float, list[str]]:
    """How long a batch takes, in seconds, and what its answers say."""
    requests = [request(kind, message) for message in messages]
    endpoint = requests[0][0]
    lines = [
        json.dumps({"custom_id": str(n), "method": "POST", "url": url, "body": body}).encode() + b"\n"
        for n, (url, body) in enumerate(requests)
    ]
    file = store.add_file("", "requests.jsonl", "batch", lines)
    began, batch = time.monotonic(), store.add_batch("", endpoint, file.id, None, None)
    runner.change()
    while batch.status in OPEN:
        await asyncio.sleep(0.1)
        found = await store.call(store.batch, batch.id, "")
        assert found is not None
        batch = found
    seconds = time.monotonic() - began
    answers = [json.loads(text) for _, text in store.lines(batch.output_file, 0, len(lines))]
    by_number = {int(answer["custom_id"]): department(kind, answer["response"]["body"]) for answer in answers}
    return seconds, [by_number.get(n, "") for n in range(len(lines))]


async def measure(model: str, kinds: list[str], count: int, prices: PriceList) -> Table:
    """Both batches, one after the other."""
    engine = load_engine(ModelOptions(model=model), Console(stderr=True))
    engine.model.grammars.preload()
    admission, table = Admission(), Table("by", "items", "items a second", "right", "tokens read", "cached", "written",
                                          "cost", "cpu s")  # fmt: skip
    limit = RequestLimit(admission, 8, "too_many_completions", "completions are being generated")
    handlers = {
        "/v1/decide": Decisions(engine, model, limit).handle,
        "/v1/chat/completions": ChatCompletions(engine, model, limit, Reasoning(engine)).handle,
    }
    messages, expected = zip(*items(count), strict=True)
    with tempfile.TemporaryDirectory() as folder:
        store = BatchStore(Path(folder) / "batches.sqlite")
        runner = BatchRunner(store, admission, handlers)
        running = asyncio.create_task(runner.run())
        for kind in kinds:
            await classify(store, runner, kind, list(messages[:8]))  # reads the instructions
            before, cpu_s = admission.usage.total, time.process_time()
            seconds, found = await classify(store, runner, kind, list(messages))
            total, cpu_s = admission.usage.total, time.process_time() - cpu_s
            read, cached = total.input_tokens - before.input_tokens, total.cached_tokens - before.cached_tokens
            written = total.output_tokens - before.output_tokens
            cost = prices.cost(total) - prices.cost(before)
            right = sum(one == other for one, other in zip(found, expected, strict=True))
            table.add_row(
                kind, f"{count:,}", f"{count / seconds:.1f}", f"{right / count:.1%}", f"{read:,}", f"{cached:,}",
                f"{written:,}", f"{cost:.4f}", f"{cpu_s:.0f}",
            )  # fmt: skip
        await cancel([running])
        store.close()
    engine.close()
    return table


def main(
    model: str = QWEN_05B.name,
    items: int = 10_000,
    kinds: str = "decide,schema",
    input_price: Annotated[float, typer.Option(help="Of a million tokens read.")] = 0.25,
    cached_price: Annotated[float, typer.Option(help="Of a million tokens from the cache.")] = 0.025,
    output_price: Annotated[float, typer.Option(help="Of a million tokens written.")] = 0.75,
) -> None:
    """Measure and report."""
    prices = PriceList(
        million_input_tokens=input_price, million_cached_tokens=cached_price, million_output_tokens=output_price
    )
    Console().print(asyncio.run(measure(model, kinds.split(","), items, prices)))


if __name__ == "__main__":
    typer.run(main)
