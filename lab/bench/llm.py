"""`rejoinder bench model`: how fast the language model is on this machine, with and without drafts, and how fast
llama.cpp is on the same file. docs/benchmarks/language-model.md defines the figures. The three take turns."""

from __future__ import annotations

import asyncio
import itertools
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TypeVar

import torch
from rich.console import Console
from rich.table import Table

from agent.instructions import INSTRUCTIONS
from chat.types import Ask, Message
from lab.bench.llama_cpp import LlamaCpp, LlamaCppFailed, unavailable_reason
from model.decode.draft import Draft
from model.decode.draft_length import num_rows
from model.decode.verify import VerificationStep
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import LoadedModel
from model.nn.forward_batch import ForwardInput, text_input
from model.nn.kv_cache import KeyValueCache
from server.serving.model_choice import resolve_model
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine, locate_model
from voice.clauses import ClauseSplitter

K = TypeVar("K", bound=Hashable)

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

MAX_TOKENS = 64
"""A long spoken response."""

ROWS = (1, 4, 9, 16, 32)
"""Numbers of rows for which a forward pass of plain text is timed: what rows cost, whatever they are for."""

_REPEATS = 15
_MATMUL_ROWS = 256

_STREAM_BYTES = 512 << 20
"""Bytes that are read to measure the memory bandwidth; far more than any cache holds."""


@dataclass(frozen=True)
class ConcurrencyFigures:
    """Several conversations at once.

    Attributes:
        tokens_per_second: of all conversations together.
        first_clause_ms, clause_ms: p95 of the time to the first clause, and between one clause and the next.
    """

    conversations: int
    tokens_per_second: float
    first_clause_ms: float
    clause_ms: float


@dataclass(frozen=True)
class Figures:
    """The output of `--json`.

    Attributes:
        ms_by_rows: time of a forward pass with this many rows of plain text. Measured without a CUDA graph, also where
            the other figures use one.
        ms_by_drafts: time of a forward pass with this many drafts, as decoding runs it. With an adapter: clean rows,
            and for each outcome a branch of noise rows that pass through it; (drafts + 1)² rows. With a draft head:
            drafts + 1 rows. 0 drafts is one token per forward pass: the same measurement as one row of text. Measured
            without a CUDA graph, too.
        drafted_by: what drafted, the most frequent first.
        drafts_shown, drafts_kept: draft tokens that were reported, and that became final.
        steps: of the same responses.
        draft_head_ms: time in which the draft head drafts one token, before the forward pass; None without one.
        replayed_ms: time of a step as a CUDA graph, by the number of conversations that share it; empty on a CPU.
        gigabytes_per_second: weights that are read when decoding one token per forward pass; compare with
            `memory_gigabytes_per_second`, what the memory can deliver.
        product_teraflops_per_second: of the largest matrix multiplication; compare with `teraflops_per_second`, of the
            largest timed forward pass of text.
        peak_memory_gigabytes: of all responses, the concurrent ones included; taken before the memory bandwidth is
            measured.
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
    drafted_by: str
    drafts_shown: int
    drafts_kept: int
    steps: int
    drafts: int
    ms_by_rows: dict[int, float]
    ms_by_drafts: dict[int, float]
    replayed_ms: dict[int, float]
    draft_head_ms: float | None
    weight_bytes: int
    gigabytes_per_second: float
    memory_gigabytes_per_second: float
    teraflops_per_second: float
    product_teraflops_per_second: float
    peak_memory_gigabytes: float
    crowds: list[ConcurrencyFigures]


@dataclass(frozen=True)
class _Response:
    """One response: its text, and the tokens, steps and seconds after its first forward pass."""

    text: str
    tokens: int
    steps: int
    seconds: float
    clauses: tuple[float, ...]
    """Seconds from the question to each clause."""
    drafted_by: Counter[str]
    """How many drafts each origin made."""
    drafts_shown: int
    drafts_kept: int


def run(model_options: ModelOptions, console: Console, concurrencies: Sequence[int] = ()) -> Figures:
    """Run the benchmark. Raises what loading a model raises.

    Args:
        concurrencies: numbers of concurrent conversations that are also measured.
    """
    model_options = resolve_model(model_options)
    path = locate_model(model_options.model, console)
    engine = load_engine(model_options, console)
    llama = None
    try:
        decoder = engine.model.decoder
        reason = unavailable_reason(path, decoder.device.type)
        try:
            llama = LlamaCpp(path, engine.context) if reason is None else None
        except LlamaCppFailed as error:
            reason = str(error)
        if reason is not None:
            console.print(reason, highlight=False, markup=False)
        drafted, undrafted, llama_speeds = asyncio.run(_measure(engine, llama))
        pairs = list(zip(drafted, undrafted, strict=True))
        drafted, undrafted = [r for r in drafted if r.steps], [r for r in undrafted if r.steps]
        concurrent = [asyncio.run(_measure_concurrency(engine, count)) for count in concurrencies]
        peak = _peak_memory(decoder.device)
        controller, replayed = engine.draft_length, engine.replayed_steps
        ms_by_rows, ms_by_drafts = engine.call(partial(_time_forward_passes, max_drafts=len(controller.acceptance)))
        weight_bytes, rows = decoder.nbytes, ROWS[-1]
        origins = sum((response.drafted_by for response in drafted), Counter[str]())
        return Figures(
            model=model_options.model,
            device=_device_name(decoder.device),
            precision=decoder.precision,
            tokens_per_second=round(statistics.median(r.tokens / r.seconds for r in drafted), 1),
            tokens_per_forward=round(sum(r.tokens for r in drafted) / sum(r.steps for r in drafted), 3),
            ms_per_forward=round(1000 * statistics.median(r.seconds / r.steps for r in drafted), 1),
            autoregressive_tokens_per_second=round(statistics.median(r.tokens / r.seconds for r in undrafted), 1),
            llama_cpp_tokens_per_second=round(statistics.median(llama_speeds), 1) if llama_speeds else None,
            first_clause_ms=round(1000 * statistics.median(r.clauses[0] for r in drafted), 1),
            identical_to_autoregressive=f"{sum(a.text == b.text for a, b in pairs)} of {len(pairs)}",
            drafted_by=", ".join(name for name, _ in origins.most_common()),
            drafts_shown=sum(r.drafts_shown for r in drafted),
            drafts_kept=sum(r.drafts_kept for r in drafted),
            steps=sum(r.steps for r in drafted),
            drafts=replayed[1][0] if replayed else controller.num_drafts(),
            ms_by_rows=ms_by_rows,
            ms_by_drafts=ms_by_drafts,
            replayed_ms={count: round(1000 * seconds, 3) for count, (_, seconds) in replayed.items()},
            draft_head_ms=None if controller.head_seconds is None else round(1000 * controller.head_seconds, 2),
            weight_bytes=weight_bytes,
            gigabytes_per_second=round(
                weight_bytes * statistics.median(r.steps / r.seconds for r in undrafted) / 1e9, 1
            ),
            memory_gigabytes_per_second=round(engine.call(_memory_bandwidth), 1),
            teraflops_per_second=round(2 * decoder.num_weights * rows / ms_by_rows[rows] / 1e9, 2),
            product_teraflops_per_second=round(engine.call(_matmul_teraflops), 2),
            peak_memory_gigabytes=round(peak / 1e9, 2),
            crowds=concurrent,
        )
    finally:
        if llama is not None:
            llama.close()
        engine.close()


def show(figures: Figures, console: Console) -> None:
    """Print the figures as tables."""
    table = Table("figure", "value", title=f"{figures.model}, {figures.precision} on {figures.device}")
    for name, value in asdict(figures).items():
        if name not in ("model", "device", "precision", "ms_by_rows", "ms_by_drafts", "replayed_ms", "crowds"):
            shown = "not compared" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
            table.add_row(name.replace("_", " "), shown)
    single_row_ms = figures.ms_by_rows[1]
    for rows, ms in figures.ms_by_rows.items():
        name = f"ms for a forward pass of {rows} {'row' if rows == 1 else 'rows'} of text"
        table.add_row(name, f"{ms} ({ms / single_row_ms:.2f}×)")
    for drafts, ms in figures.ms_by_drafts.items():
        if drafts:  # without drafts it is the forward pass of one row of text
            name = f"ms for a forward pass of {drafts} {'draft' if drafts == 1 else 'drafts'}"
            if figures.draft_head_ms is None:
                rows, noise = num_rows(drafts), drafts * (drafts + 1)
                name += f", {rows} rows, {noise} of them noise rows"
            table.add_row(name, f"{ms} ({ms / single_row_ms:.2f}×)")
    for count, ms in figures.replayed_ms.items():
        table.add_row(f"ms of a replayed step for {count} {'conversation' if count == 1 else 'conversations'}", str(ms))
    console.print(table)
    if figures.crowds:
        concurrency = Table("conversations", "total tokens/s", "first clause, p95 ms", "between clauses, p95 ms")
        for row in figures.crowds:
            concurrency.add_row(*(str(value) for value in asdict(row).values()))
        console.print(concurrency)


async def _measure(engine: Engine, llama: LlamaCpp | None) -> tuple[list[_Response], list[_Response], list[float]]:
    """Responses to every prompt with drafts and with one token per forward pass, and llama.cpp's tokens per second. The
    three take turns."""
    drafted, undrafted, llama_speeds = [], [], []
    for prompt in PROMPTS:
        drafted.append(await _respond(engine, prompt, True))
        undrafted.append(await _respond(engine, prompt, False))
        if llama is not None:
            ids = engine.model.template.encode(_messages(prompt))
            completion = await asyncio.to_thread(llama.generate, ids, MAX_TOKENS)
            if completion.tokens:
                llama_speeds.append(completion.tokens / completion.seconds)
    return drafted, undrafted, llama_speeds


async def _measure_concurrency(engine: Engine, count: int) -> ConcurrencyFigures:
    """`count` conversations that all start at the same time."""
    start = time.perf_counter()
    prompts = [PROMPTS[n % len(PROMPTS)] for n in range(count)]
    responses = await asyncio.gather(*(_respond(engine, prompt, True) for prompt in prompts))
    seconds = time.perf_counter() - start
    between = [after - before for r in responses for before, after in itertools.pairwise(r.clauses)]
    return ConcurrencyFigures(
        count,
        round(sum(r.tokens for r in responses) / seconds, 1),
        round(1000 * _p95([r.clauses[0] for r in responses]), 1),
        round(1000 * _p95(between or [0.0]), 1),
    )


def _p95(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.95 * len(values)))]


def _messages(prompt: str) -> list[Message]:
    return [Message("system", INSTRUCTIONS), Message("user", prompt)]


async def _respond(engine: Engine, prompt: str, drafting: bool) -> _Response:
    messages = _messages(prompt)
    conversation, splitter = Conversation(engine, drafting=drafting), ClauseSplitter()
    async for _ in conversation.reply(Ask(messages[:1], max_tokens=1)):
        pass  # the instructions are read before a user asks
    start, clauses, times, text, drafted_by = time.perf_counter(), [], [], "", Counter[str]()
    async for progress in conversation.reply(Ask(messages, max_tokens=MAX_TOKENS)):
        times.append((time.perf_counter(), progress))
        drafted_by.update([progress.draft_origin] if progress.draft else [])
        text += progress.committed
        if splitter.push(progress.committed) or progress.finished:
            clauses.append(times[-1][0] - start)
    # The first forward pass also completes the reading of the prompt; what follows it is decoding.
    (begin, first), (end, last) = times[0], times[-1]
    return _Response(
        text, last.tokens - first.tokens, last.step - first.step, end - begin, tuple(clauses), drafted_by,
        last.drafts_shown, last.drafts_kept,
    )  # fmt: skip


def _time_forward_passes(model: LoadedModel, max_drafts: int) -> tuple[dict[int, float], dict[int, float]]:
    """Milliseconds of a forward pass by rows of plain text, and by drafts up to `max_drafts`. Without drafts a forward
    pass is one row of text, so it is measured only once."""
    head = model.draft_head is not None
    builders: dict[tuple[str, int], Callable[[KeyValueCache], ForwardInput]] = {
        **{("text", rows): partial(text_input, tokens=[0] * rows, num_outputs=rows) for rows in ROWS},
        **{
            ("drafts", k): VerificationStep(0, Draft((0,) * k), (), 0 if head else k).forward_input
            for k in range(1, max_drafts + 1)
        },
    }
    ms = _time(model, builders)
    ms_by_rows = {rows: ms["text", rows] for rows in ROWS}
    return ms_by_rows, {0: ms_by_rows[1], **{k: ms["drafts", k] for k in range(1, max_drafts + 1)}}


def _time(model: LoadedModel, builders: Mapping[K, Callable[[KeyValueCache], ForwardInput]]) -> dict[K, float]:
    """Median milliseconds of each forward pass after a short conversation. They take turns."""
    cache = model.decoder.new_cache()
    model.decoder.forward([0] * 150, cache, logits="none")
    seconds: dict[K, list[float]] = {key: [] for key in builders}
    for _ in range(_REPEATS):
        for key, build in builders.items():
            forward_input = build(cache)
            seconds[key].append(_timed(partial(model.decoder.run, [forward_input], model.adapter)))
    return {key: round(1000 * statistics.median(times), 2) for key, times in seconds.items()}


def _memory_bandwidth(model: LoadedModel) -> float:
    """Gigabytes per second that one thread pool reads from this device's memory."""
    block = torch.ones(_STREAM_BYTES // 4, device=model.decoder.device)
    best = min(_timed(lambda: block.sum().item()) for _ in range(5))
    return _STREAM_BYTES / best / 1e9


def _matmul_teraflops(model: LoadedModel) -> float:
    """TFLOP/s of this model's largest matrix multiplication with many rows: what arithmetic can reach here."""
    decoder = model.decoder
    states = torch.randn(_MATMUL_ROWS, decoder.config.hidden, dtype=decoder.dtype, device=decoder.device)
    best = min(_timed(lambda: decoder.head(states)) for _ in range(5))
    return 2 * _MATMUL_ROWS * decoder.config.vocab_size * decoder.config.hidden / best / 1e12


def _peak_memory(device: torch.device) -> int:
    """Peak bytes held on the GPU, or by this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    max_rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return max_rss * (1 if sys.platform == "darwin" else 1024)


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def _timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start
