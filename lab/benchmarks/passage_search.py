"""Search over many passages: what the embedding model finds, what the language model makes of the order, and how long
both take.

    python -m lab.benchmarks.passage_search [--sizes 1000,10000,100000] [--queries 200] [--model NAME] [--reranked 50]

The passages are generated: facts about invented shops, several about each. A query asks for one fact in other words.
Every size has the same queries; the larger it is, the more facts are about the same thing, or about shops with a
similar name.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import asyncio
import itertools
import random
import time
from collections.abc import Iterator, Sequence

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from agent.documents.embedding import EMBEDDING_MODEL, Embedder
from model.engine.engine import Engine
from model.engine.relevance import RelevanceScorer
from model.hub.catalog import QWEN_05B
from model.hub.store import ModelStore
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine

_COLOURS = "Amber Black Blue Copper Crimson Golden Green Grey Ivory Old Red Silver White Yellow".split()
_SIGNS = "Anchor Bear Bell Crown Duck Eagle Fox Hare Harp Lion Moon Oak Owl Rose Ship Star Sun Swan Wheel Wolf".split()
_KINDS = "bakery bookshop butcher café cinema dentist garage hotel museum pharmacy restaurant swimming pool".split()
_TOWNS = (
    "Aldford Brenton Calder Dunmore Elsby Farrow Gleneth Harwick Ilmer Kelso Lorne Marsh Norby Orton Penrow".split()
)

_FACTS = (
    ("{shop} opens at {n} in the morning.", "From what time can I go to {shop}?"),
    ("On Sundays {shop} closes {n} hours earlier.", "How much shorter is the last day of the week at {shop}?"),
    ("{shop} was founded {n} years ago by a family from the coast.", "How old is {shop}?"),
    ("There are {n} spaces for cars behind {shop}.", "Where can I park when I visit {shop}?"),
    ("{shop} employs {n} people.", "How big is the staff of {shop}?"),
    ("Dogs may come to {shop} if they weigh less than {n} kilos.", "Can I bring my pet to {shop}?"),
    ("{shop} gives students a discount of {n} per cent.", "Is it cheaper at {shop} for people who study?"),
    ("Bus number {n} stops in front of {shop}.", "How do I get to {shop} by public transport?"),
    ("{shop} has {n} steps at its entrance and no ramp.", "Can somebody in a wheelchair enter {shop}?"),
    ("Whoever wants to complain to {shop} has {n} days.", "How long after a visit can I object at {shop}?"),
    ("{shop} will be rebuilt for {n} weeks in spring.", "When will {shop} be closed for works?"),
    ("At {shop} you can pay by card from {n} euros on.", "Does {shop} take anything but cash?"),
    ("{shop} heats with wood from a forest {n} kilometres away.", "What keeps {shop} warm in winter?"),
    ("The owner of {shop} speaks {n} languages.", "Will I be understood at {shop} as a foreigner?"),
    ("{shop} lost {n} windows in the storm of last autumn.", "What damage did the weather do to {shop}?"),
    ("A voucher of {shop} is valid for {n} months.", "Until when can I use a gift card of {shop}?"),
    ("{shop} was named the best of the county {n} times.", "Which prizes has {shop} won?"),
    ("{shop} hands out what is left over from {n} o'clock on.", "Is anything free at {shop} in the evening?"),
    ("The wireless network of {shop} is switched off after {n} minutes.", "Is there internet for guests of {shop}?"),
    ("{shop} rents out a room above it for {n} guests.", "Where near {shop} can I celebrate a birthday?"),
)  # fmt: skip
"""What passages say, and how it is asked for."""

_NUM_FOUND = 20
"""Passages that the language model puts in order."""


def shops() -> Iterator[str]:
    """Invented names, each once, in a random order."""
    names = [
        f"the {colour} {sign} {kind} in {town}"
        for colour, sign, kind, town in itertools.product(_COLOURS, _SIGNS, _KINDS, _TOWNS)
    ]
    random.Random(0).shuffle(names)
    yield from names


def passages_and_queries(size: int, num_queries: int) -> tuple[list[str], list[tuple[str, int]]]:
    """Passages, and queries with the number of the passage that answers each. Queries are about the first 1,000."""
    draw = random.Random(1)
    known = list(itertools.islice(((shop, fact) for shop in shops() for fact in _FACTS), size))
    passages = [_sentence(fact[0], shop, draw.randint(2, 40)) for shop, fact in known]
    chosen = random.Random(2).sample(range(min(size, 1000)), num_queries)
    return passages, [(_sentence(known[n][1][1], known[n][0]), n) for n in chosen]


def _sentence(pattern: str, shop: str, number: int = 0) -> str:
    text = pattern.format(shop=shop, n=number)
    return text[0].upper() + text[1:]


def row_of(label: str, ranks: Sequence[int], milliseconds: Sequence[float]) -> list[str]:
    """A row of the table, from the rank of each right passage."""
    at = [f"{sum(rank < count for rank in ranks) / len(ranks):.2f}" for count in (1, 5, 10, _NUM_FOUND)]
    p50, p95 = np.percentile(milliseconds, (50, 95))
    return [label, *at, f"{p50:.1f}", f"{p95:.1f}"]


def main(
    sizes: str = "1000,10000,100000",
    queries: int = 200,
    model: str = QWEN_05B.name,
    reranked: int = 50,
    dimensions: str = "384,128",
) -> None:
    """Measure and report."""
    embedder, console = Embedder(ModelStore().locate(EMBEDDING_MODEL)), Console()
    engine = load_engine(ModelOptions(model=model), Console(stderr=True)) if reranked else None
    table = Table("passages", "by", "precision at 1", "recall at 5", "at 10", f"at {_NUM_FOUND}", "ms p50", "ms p95")
    for size in map(int, sizes.split(",")):
        passages, asked = passages_and_queries(size, queries)
        began = time.monotonic()
        vectors = embedder(passages)
        seconds = time.monotonic() - began
        console.print(f"{size:,} passages embedded in {seconds:.0f} s, {vectors.nbytes / 1e6:.0f} MB of vectors")
        best = list[np.ndarray]()
        for width in map(int, dimensions.split(",")):
            narrow = vectors[:, :width] / np.linalg.norm(vectors[:, :width], axis=1, keepdims=True)
            orders, ranks, milliseconds = [], [], []
            for query, right in asked:
                began = time.perf_counter()
                scores = narrow @ embedder([query])[0][:width]
                top = np.argpartition(-scores, _NUM_FOUND)[:_NUM_FOUND]
                order = top[np.argsort(-scores[top])]
                milliseconds.append(1000 * (time.perf_counter() - began))
                orders.append(order)
                ranks.append(int(np.flatnonzero(order == right)[0]) if right in order else _NUM_FOUND)
            table.add_row(f"{size:,}", *row_of(f"embedding, {width} dimensions", ranks, milliseconds))
            best = best or orders
        if engine is not None:
            ranks, milliseconds = asyncio.run(rerank(engine, passages, asked[:reranked], best))
            table.add_row(
                f"{size:,}", *row_of(f"{model} orders {_NUM_FOUND} ({reranked} queries)", ranks, milliseconds)
            )
    if engine is not None:
        engine.close()
    console.print(table)


async def rerank(
    engine: Engine, passages: Sequence[str], asked: Sequence[tuple[str, int]], best: Sequence[np.ndarray]
) -> tuple[list[int], list[float]]:
    """The rank of each right passage after the language model has ordered those that were found, and the time."""
    ranks, milliseconds = [], []
    for (query, right), order in zip(asked, best, strict=False):
        began = time.perf_counter()
        found = await RelevanceScorer(engine, keep_all_messages=True).score(query, [passages[n] for n in order])
        milliseconds.append(1000 * (time.perf_counter() - began))
        ordered = order[np.argsort(-np.array(found.probabilities), kind="stable")]
        ranks.append(int(np.flatnonzero(ordered == right)[0]) if right in ordered else _NUM_FOUND)
    return ranks, milliseconds


if __name__ == "__main__":
    typer.run(main)
