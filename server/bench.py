"""`rejoinder bench model`: how fast the language model is on this machine, beside the same engine saying one token a
pass. Definitions are those of docs/benchmarks.md; the sides take turns on every prompt."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

import torch
from rich.console import Console
from rich.table import Table

from model.chat import TextMessage
from model.engine import Engine, LoadedModel
from model.transformer import text_rows
from server.loading import Choice, load_engine
from voice.clauses import ClauseSplitter
from voice.persona import INSTRUCTIONS

PROMPTS = (
    "What is the capital of France?",
    "How do I boil an egg?",
    "Why is the sky blue?",
    "Tell me something about the history of London.",
    "What should I do on a rainy day?",
    "How does a bicycle stay upright?",
    "Give me the days of the week, one after the other.",
    "Repeat after me: the quick brown fox jumps over the lazy dog, and the lazy dog looks up.",
)
"""Spoken questions, easy and hard to draft for."""

MOST_TOKENS = 64
"""A long spoken answer."""

ROWS = (1, 4, 9, 16, 32)
"""Sizes of a pass that are timed."""

_REPEATS = 15
_STREAM_BYTES = 512 << 20
"""Read to find out what the memory gives; far larger than any cache."""


@dataclass(frozen=True)
class Figures:
    """What `--json` prints."""

    model: str
    device: str
    precision: str
    tokens_per_second: float
    tokens_per_forward: float
    ms_per_forward: float
    autoregressive_tokens_per_second: float
    first_clause_ms: float
    identical_to_autoregressive: str
    ms_by_rows: dict[int, float]
    weight_bytes: int
    gigabytes_per_second: float
    memory_gigabytes_per_second: float


@dataclass(frozen=True)
class _Answer:
    """One answer: its text, and the tokens, passes and seconds behind its first pass."""

    text: str
    tokens: int
    steps: int
    seconds: float
    first_clause: float


def run(choice: Choice, console: Console) -> Figures:
    """Measure. Raises what loading a model raises."""
    engine = load_engine(choice, console)
    try:
        pairs = asyncio.run(_measure(engine))
        drafted = [pair[0] for pair in pairs if pair[0].steps]
        alone = [pair[1] for pair in pairs if pair[1].steps]
        by_rows = engine.call(_time_rows)
        weights = engine.model.decoder.nbytes
        return Figures(
            model=choice.model,
            device=str(engine.model.decoder.device),
            precision=engine.model.decoder.precision,
            tokens_per_second=round(statistics.median(a.tokens / a.seconds for a in drafted), 1),
            tokens_per_forward=round(sum(a.tokens for a in drafted) / sum(a.steps for a in drafted), 3),
            ms_per_forward=round(1000 * statistics.median(a.seconds / a.steps for a in drafted), 1),
            autoregressive_tokens_per_second=round(statistics.median(a.tokens / a.seconds for a in alone), 1),
            first_clause_ms=round(1000 * statistics.median(a.first_clause for a in drafted), 1),
            identical_to_autoregressive=f"{sum(a.text == b.text for a, b in pairs)} of {len(pairs)}",
            ms_by_rows=by_rows,
            weight_bytes=weights,
            gigabytes_per_second=round(weights / by_rows[1] / 1e6, 1),
            memory_gigabytes_per_second=round(engine.call(_memory_speed), 1),
        )
    finally:
        engine.close()


def show(figures: Figures, console: Console) -> None:
    """Print the figures for people."""
    table = Table("figure", "value", title=f"{figures.model}, {figures.precision} on {figures.device}")
    for name, value in asdict(figures).items():
        if name not in ("model", "device", "precision", "ms_by_rows"):
            table.add_row(name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
    for rows, ms in figures.ms_by_rows.items():
        table.add_row(f"ms for a pass of {rows} rows", f"{ms} ({ms / figures.ms_by_rows[1]:.2f}×)")
    console.print(table)


async def _measure(engine: Engine) -> list[tuple[_Answer, _Answer]]:
    """Every prompt answered with drafts and one token a pass, in turn."""
    return [(await _answer(engine, prompt, True), await _answer(engine, prompt, False)) for prompt in PROMPTS]


async def _answer(engine: Engine, prompt: str, drafting: bool) -> _Answer:
    messages = [TextMessage("system", INSTRUCTIONS), TextMessage("user", prompt)]
    conversation, splitter = engine.conversation(drafting=drafting), ClauseSplitter()
    async for _ in conversation.reply(messages[:1], max_tokens=1):
        pass  # the persona has been read before anybody asks
    began, clause_at, times, text = time.perf_counter(), 0.0, [], ""
    async for progress in conversation.reply(messages, max_tokens=MOST_TOKENS):
        times.append((time.perf_counter(), progress.tokens))
        text += progress.committed
        if not clause_at and (splitter.push(progress.committed) or progress.finished):
            clause_at = times[-1][0]
    # The first pass also ends the reading of the prompt; what follows it is decoding.
    (first, before), (end, tokens) = times[0], times[-1]
    return _Answer(text, tokens - before, len(times) - 1, end - first, clause_at - began)


def _time_rows(model: LoadedModel) -> dict[int, float]:
    """Milliseconds of a pass with each number of rows behind a short conversation, in turn, medians."""
    cache = model.decoder.new_cache()
    model.decoder.forward([0] * 150, cache, logits="none")
    took: dict[int, list[float]] = {rows: [] for rows in ROWS}
    for _ in range(_REPEATS):
        for rows in ROWS:
            ahead = text_rows(cache, [0] * rows, rows)
            took[rows].append(_timed(partial(model.decoder.run, [ahead], model.adapter)))
    return {rows: round(1000 * statistics.median(times), 1) for rows, times in took.items()}


def _memory_speed(model: LoadedModel) -> float:
    """Gigabytes a second that one thread pool reads from this device's memory."""
    block = torch.ones(_STREAM_BYTES // 4, device=model.decoder.device)
    best = min(_timed(lambda: block.sum().item()) for _ in range(5))
    return _STREAM_BYTES / best / 1e9


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began
