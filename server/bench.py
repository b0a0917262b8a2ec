"""`rejoinder bench model`: how fast the language model is on this machine, beside the same engine saying one token a
pass, and llama.cpp on the same file. Definitions are those of docs/benchmarks.md; the sides take turns."""

from __future__ import annotations

import asyncio
import itertools
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import torch
from rich.console import Console
from rich.table import Table

from model.cache import KeyValueCache
from model.chat import TextMessage
from model.decode.draft import Draft
from model.decode.pace import rows_of
from model.decode.verify import Pass
from model.engine import Engine, LoadedModel
from model.transformer import Rows, text_rows
from server.bench_llama import LlamaCpp, missing
from server.loading import Choice, load_engine, locate
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
"""Sizes of a pass of plain text that are timed: what rows cost, whatever they are for."""

_REPEATS = 15
_PRODUCT_ROWS = 256

_STREAM_BYTES = 512 << 20
"""Read to find out what the memory gives; far larger than any cache."""


@dataclass(frozen=True)
class Crowd:
    """Several conversations at once.

    Attributes:
        tokens_per_second: of all together.
        first_clause_ms, clause_ms: p95 of the time to the first clause, and between one clause and the next.
    """

    conversations: int
    tokens_per_second: float
    first_clause_ms: float
    clause_ms: float


@dataclass(frozen=True)
class Figures:
    """What `--json` prints.

    Attributes:
        ms_by_rows: of a pass with so many rows of plain text; without a CUDA graph, where others are run with one.
        ms_by_drafts: of a pass with so many drafts as decoding runs it: clean rows, and through the adapter a branch
            of noise rows for each outcome; (drafts + 1)² rows. 0 is one token a pass. Without a CUDA graph, too.
        gigabytes_per_second: weights that decoding one token a pass reads, beside what the memory gives.
        peak_memory_gigabytes: of all answers, the crowds' among them; before the memory itself was measured.
    """

    model: str
    device: str
    precision: str
    tokens_per_second: float
    tokens_per_forward: float
    ms_per_forward: float
    autoregressive_tokens_per_second: float
    llama_cpp_tokens_per_second: float | None
    first_clause_ms: float
    identical_to_autoregressive: str
    drafts: int
    ms_by_rows: dict[int, float]
    ms_by_drafts: dict[int, float]
    weight_bytes: int
    gigabytes_per_second: float
    memory_gigabytes_per_second: float
    teraflops_per_second: float
    product_teraflops_per_second: float
    peak_memory_gigabytes: float
    crowds: list[Crowd]


@dataclass(frozen=True)
class _Answer:
    """One answer: its text, and the tokens, passes and seconds behind its first pass."""

    text: str
    tokens: int
    steps: int
    seconds: float
    clauses: tuple[float, ...]
    """Seconds from the question to each clause."""


def run(choice: Choice, console: Console, crowds: Sequence[int] = ()) -> Figures:
    """Measure. Raises what loading a model raises.

    Args:
        crowds: numbers of conversations that are also measured at once.
    """
    path = locate(choice.model, console)
    engine = load_engine(choice, console)
    llama = None
    try:
        decoder = engine.model.decoder
        reason = missing(path, decoder.device.type)
        if reason is None:
            llama = LlamaCpp(path, engine.context)
        else:
            console.print(reason, highlight=False)
        drafted, alone, others = asyncio.run(_measure(engine, llama))
        pairs = list(zip(drafted, alone, strict=True))
        drafted, alone = [a for a in drafted if a.steps], [a for a in alone if a.steps]
        crowded = [asyncio.run(_crowd(engine, count)) for count in crowds]
        peak = _peak_memory(decoder.device)
        by_rows = engine.call(_time_rows)
        by_drafts = engine.call(partial(_time_drafts, most=len(engine.pace.acceptance)))
        weights, rows = decoder.nbytes, ROWS[-1]
        return Figures(
            model=choice.model,
            device=_device_name(decoder.device),
            precision=decoder.precision,
            tokens_per_second=round(statistics.median(a.tokens / a.seconds for a in drafted), 1),
            tokens_per_forward=round(sum(a.tokens for a in drafted) / sum(a.steps for a in drafted), 3),
            ms_per_forward=round(1000 * statistics.median(a.seconds / a.steps for a in drafted), 1),
            autoregressive_tokens_per_second=round(statistics.median(a.tokens / a.seconds for a in alone), 1),
            llama_cpp_tokens_per_second=round(statistics.median(others), 1) if others else None,
            first_clause_ms=round(1000 * statistics.median(a.clauses[0] for a in drafted), 1),
            identical_to_autoregressive=f"{sum(a.text == b.text for a, b in pairs)} of {len(pairs)}",
            drafts=engine.pace.slots(),
            ms_by_rows=by_rows,
            ms_by_drafts=by_drafts,
            weight_bytes=weights,
            gigabytes_per_second=round(weights * statistics.median(a.steps / a.seconds for a in alone) / 1e9, 1),
            memory_gigabytes_per_second=round(engine.call(_memory_speed), 1),
            teraflops_per_second=round(2 * decoder.weights * rows / by_rows[rows] / 1e9, 2),
            product_teraflops_per_second=round(engine.call(_product_speed), 2),
            peak_memory_gigabytes=round(peak / 1e9, 2),
            crowds=crowded,
        )
    finally:
        if llama is not None:
            llama.close()
        engine.close()


def show(figures: Figures, console: Console) -> None:
    """Print the figures for people."""
    table = Table("figure", "value", title=f"{figures.model}, {figures.precision} on {figures.device}")
    for name, value in asdict(figures).items():
        if name not in ("model", "device", "precision", "ms_by_rows", "ms_by_drafts", "crowds"):
            shown = "not compared" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
            table.add_row(name.replace("_", " "), shown)
    for rows, ms in figures.ms_by_rows.items():
        table.add_row(f"ms for a pass of {rows} rows of text", f"{ms} ({ms / figures.ms_by_rows[1]:.2f}×)")
    for drafts, ms in figures.ms_by_drafts.items():
        shown = f"{ms} ({ms / figures.ms_by_drafts[0]:.2f}×)"
        table.add_row(f"ms for a pass of {drafts} drafts, {rows_of(drafts)} rows", shown)
    console.print(table)
    if figures.crowds:
        many = Table("conversations", "tokens/s together", "first clause, p95 ms", "between clauses, p95 ms")
        for crowd in figures.crowds:
            many.add_row(*(str(value) for value in asdict(crowd).values()))
        console.print(many)


async def _measure(engine: Engine, llama: LlamaCpp | None) -> tuple[list[_Answer], list[_Answer], list[float]]:
    """Every prompt answered with drafts, one token a pass, and by llama.cpp, in turn."""
    drafted, alone, others = [], [], []
    for prompt in PROMPTS:
        drafted.append(await _answer(engine, prompt, True))
        alone.append(await _answer(engine, prompt, False))
        if llama is not None:
            ids = engine.model.template.encode(_asked(prompt))
            reply = await asyncio.to_thread(llama.write, ids, MOST_TOKENS)
            if reply.tokens:
                others.append(reply.tokens / reply.seconds)
    return drafted, alone, others


async def _crowd(engine: Engine, count: int) -> Crowd:
    """So many conversations that all ask at once."""
    began = time.perf_counter()
    prompts = [PROMPTS[n % len(PROMPTS)] for n in range(count)]
    answers = await asyncio.gather(*(_answer(engine, prompt, True) for prompt in prompts))
    seconds = time.perf_counter() - began
    between = [after - before for a in answers for before, after in itertools.pairwise(a.clauses)]
    return Crowd(
        count,
        round(sum(a.tokens for a in answers) / seconds, 1),
        round(1000 * _p95([a.clauses[0] for a in answers]), 1),
        round(1000 * _p95(between or [0.0]), 1),
    )


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


def _asked(prompt: str) -> list[TextMessage]:
    return [TextMessage("system", INSTRUCTIONS), TextMessage("user", prompt)]


async def _answer(engine: Engine, prompt: str, drafting: bool) -> _Answer:
    messages = _asked(prompt)
    conversation, splitter = engine.conversation(drafting=drafting), ClauseSplitter()
    async for _ in conversation.reply(messages[:1], max_tokens=1):
        pass  # the persona has been read before anybody asks
    began, clauses, times, text = time.perf_counter(), [], [], ""
    async for progress in conversation.reply(messages, max_tokens=MOST_TOKENS):
        times.append((time.perf_counter(), progress.tokens))
        text += progress.committed
        if splitter.push(progress.committed) or progress.finished:
            clauses.append(times[-1][0] - began)
    # The first pass also ends the reading of the prompt; what follows it is decoding.
    (first, before), (end, tokens) = times[0], times[-1]
    return _Answer(text, tokens - before, len(times) - 1, end - first, tuple(clauses))


def _time_rows(model: LoadedModel) -> dict[int, float]:
    """Milliseconds of a pass with each number of rows of plain text."""
    return _time_passes(model, {rows: partial(text_rows, tokens=[0] * rows, wanted=rows) for rows in ROWS})


def _time_drafts(model: LoadedModel, most: int) -> dict[int, float]:
    """Milliseconds of a pass of draft and verify with each number of drafts up to `most`, noise rows and all."""
    return _time_passes(model, {k: Pass(0, Draft((0,) * k), (), k).rows for k in range(most + 1)})


def _time_passes(model: LoadedModel, kinds: Mapping[int, Callable[[KeyValueCache], Rows]]) -> dict[int, float]:
    """Milliseconds of each kind of pass behind a short conversation, in turn, medians."""
    cache = model.decoder.new_cache()
    model.decoder.forward([0] * 150, cache, logits="none")
    took: dict[int, list[float]] = {kind: [] for kind in kinds}
    for _ in range(_REPEATS):
        for kind, rows in kinds.items():
            ahead = rows(cache)
            took[kind].append(_timed(partial(model.decoder.run, [ahead], model.adapter)))
    return {kind: round(1000 * statistics.median(times), 2) for kind, times in took.items()}


def _memory_speed(model: LoadedModel) -> float:
    """Gigabytes a second that one thread pool reads from this device's memory."""
    block = torch.ones(_STREAM_BYTES // 4, device=model.decoder.device)
    best = min(_timed(lambda: block.sum().item()) for _ in range(5))
    return _STREAM_BYTES / best / 1e9


def _product_speed(model: LoadedModel) -> float:
    """TFLOP/s of the largest product of this model with many rows: what its arithmetic can give here."""
    decoder = model.decoder
    states = torch.randn(_PRODUCT_ROWS, decoder.config.hidden, dtype=decoder.dtype, device=decoder.device)
    best = min(_timed(lambda: decoder.head(states)) for _ in range(5))
    return 2 * _PRODUCT_ROWS * decoder.config.vocab_size * decoder.config.hidden / best / 1e12


def _peak_memory(device: torch.device) -> int:
    """Bytes held at most: on the GPU, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most * (1 if sys.platform == "darwin" else 1024)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began
