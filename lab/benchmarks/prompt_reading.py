"""Speed of reading a prompt on a CPU, beside llama.cpp on the same file, in a process of its own. The two take turns.

python -m lab.benchmarks.prompt_reading [MODEL ...]
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from lab.bench.llama_cpp import unavailable_reason
from model.engine.loader import load_model
from model.hub.catalog import QWEN_05B, QWEN_15B
from model.hub.store import ModelStore
from model.nn.cpu.team import available_cores
from model.nn.decoder import Decoder
from model.nn.forward_batch import prefill

LENGTHS = (64, 256, 1024)
"""Prompt tokens."""

_REPEATS = 7

_LLAMA_CPP = """
import json, sys, time
from llama_cpp import Llama

threads = int(sys.argv[2])
model = Llama(sys.argv[1], n_ctx=2048, n_threads=threads, n_threads_batch=threads, verbose=False)
for line in sys.stdin:
    model.reset()
    began = time.perf_counter()
    model.eval(json.loads(line))
    print(time.perf_counter() - began, flush=True)
"""


def tokens(length: int) -> list[int]:
    """Ids of a prompt; which ones does not matter for its speed."""
    return [100 + 7 * n % 5000 for n in range(length)]


def read(decoder: Decoder, length: int) -> float:
    """Seconds to read a prompt into an empty cache, in chunks, as a conversation does."""
    cache, began = decoder.new_cache(), time.perf_counter()
    for chunk in prefill(cache, tokens(length)):
        decoder.run([chunk])
    return time.perf_counter() - began


def measure(path: Path) -> list[tuple[int, float, float | None]]:
    """Of each length the median seconds, here and by llama.cpp (None if it is not installed)."""
    decoder, llama = load_model(path, device="cpu").decoder, None
    if unavailable_reason(path, "cpu") is None:
        command = [sys.executable, "-c", _LLAMA_CPP, str(path), str(available_cores())]
        llama = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read_by_llama(length: int) -> float:
        assert llama is not None and llama.stdin is not None and llama.stdout is not None
        llama.stdin.write(json.dumps(tokens(length)) + "\n")
        llama.stdin.flush()
        return float(llama.stdout.readline())

    figures: list[tuple[int, float, float | None]] = []
    for length in LENGTHS:
        ours, theirs = [], []
        for _ in range(_REPEATS + 1):
            ours.append(read(decoder, length))
            if llama is not None:
                theirs.append(read_by_llama(length))
        figures.append((length, statistics.median(ours[1:]), statistics.median(theirs[1:]) if theirs else None))
    if llama is not None and llama.stdin is not None:
        llama.stdin.close()
        llama.wait()
    return figures


def main() -> None:
    """Run with the models of the command line."""
    table = Table("model", "prompt tokens", "ms", "tokens/s", "llama.cpp, ms", "times llama.cpp")
    for model in sys.argv[1:] or (QWEN_05B.name, QWEN_15B.name):
        for length, ours, theirs in measure(ModelStore().locate(model)):
            row = [model, str(length), f"{1000 * ours:,.0f}", f"{length / ours:,.0f}"]
            table.add_row(*row, *(("", "") if theirs is None else (f"{1000 * theirs:,.0f}", f"{theirs / ours:.2f}")))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
