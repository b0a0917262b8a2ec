"""int8 keys and values beside float ones: memory, the time of a token after a long text, and whether the text changes.

    python -m lab.benchmarks.int8_cache [--model NAME] [--tokens 4096] [--repeats 40]

Both kinds take turns. Agreement is over the tokens of a text that is not the model's own (the pages of `docs/design`):
whether the most likely next token is the same, and how far the distributions are apart.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import statistics
import time
from pathlib import Path

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch import Tensor

from model.engine.loader import LoadedModel, load_model
from model.hub.catalog import QWEN_05B
from model.nn.decoder import CacheType
from model.nn.forward_batch import text_input
from model.nn.kv_cache import KeyValueCache
from server.serving.runtime import locate_model

_PAGES = sorted((Path(__file__).parents[2] / "docs/design").glob("*.md"))

_SCORED = 128
"""Tokens at the end of a text whose predictions are compared."""

_CHUNK = 64


def read(model: LoadedModel, ids: list[int]) -> KeyValueCache:
    """A cache that holds a text."""
    cache = model.decoder.new_cache()
    for start in range(0, len(ids), _CHUNK):
        model.decoder.forward(ids[start : start + _CHUNK], cache, logits="none")
    return cache


def seconds(model: LoadedModel, cache: KeyValueCache) -> float:
    """Time of a forward pass of one token."""
    began = time.perf_counter()
    model.decoder.run([text_input(cache, [0], 1)])
    return time.perf_counter() - began


@torch.inference_mode()
def predictions(model: LoadedModel, ids: list[int]) -> Tensor:
    """Log probabilities of what follows each of the last tokens of a text: [tokens, vocabulary]."""
    cache = read(model, ids[:-_SCORED])
    return model.decoder.forward(ids[-_SCORED:], cache, logits="all").float().log_softmax(-1)


def main(model: str = QWEN_05B.name, tokens: int = 4096, repeats: int = 40) -> None:
    """Measure and report."""
    path = locate_model(model, Console(stderr=True))
    kinds: tuple[CacheType, ...] = ("auto", "int8")
    models: dict[CacheType, LoadedModel] = {kind: load_model(path, kv_cache_dtype=kind) for kind in kinds}
    encode = models["auto"].tokenizer.encode
    texts = [encode(page.read_text(encoding="utf-8")) for page in _PAGES]
    long = [token for text in texts for token in text]
    ids = (long * (tokens // len(long) + 1))[:tokens]
    caches = {kind: read(loaded, ids) for kind, loaded in models.items()}
    times: dict[CacheType, list[float]] = {kind: [] for kind in models}
    for _ in range(repeats):
        for kind, loaded in models.items():
            times[kind].append(seconds(loaded, caches[kind]))
    table = Table("keys and values", "bytes a token", f"ms a token after {tokens:,}")
    for kind, cache in caches.items():
        table.add_row(kind, f"{cache.bytes_per_token:,}", f"{1000 * statistics.median(times[kind]):.1f}")
    Console().print(table)
    same = count = 0
    divergences = list[float]()
    for text in texts:
        exact, rounded = (predictions(loaded, text[:2048]) for loaded in models.values())
        same += int((exact.argmax(-1) == rounded.argmax(-1)).sum())
        count += len(exact)
        divergences += (exact.exp() * (exact - rounded)).sum(-1).tolist()
    print(f"most likely token equal: {same} of {count}; KL divergence: mean {statistics.mean(divergences):.5f} nats")


if __name__ == "__main__":
    typer.run(main)
