"""The first start of a language model and later ones: seconds until it can answer, and the peak memory of the process;
then what a user waits for at later starts, the median of some: the first words of `rejoinder ask`, and a server that is
ready.

    python -m lab.benchmarks.first_start [MODEL ...]

The first start assembles the model from its packages, repacks its weights and compiles the kernels, all in an empty
cache folder; the second one finds them there. Peak memory is the peak resident set, which counts the pages of mapped
files. Linux only.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

from rich.console import Console
from rich.table import Table

from model.hub.catalog import QWEN_05B, QWEN_15B

_RUNS = 5
"""Later starts, after one that is not counted because it reads the instructions."""

_START = """
import resource, sys, threading, time

began, anonymous, loaded = time.perf_counter(), [0], threading.Event()

def sample():
    page = resource.getpagesize()
    while not loaded.wait(0.01):
        resident, shared = open("/proc/self/statm").read().split()[1:3]
        anonymous[0] = max(anonymous[0], page * (int(resident) - int(shared)))

sampler = threading.Thread(target=sample)
sampler.start()
try:
    from rich.console import Console
    from server.serving.runtime import load_engine
    from server.serving.options import ModelOptions
    engine = load_engine(ModelOptions(model=sys.argv[1]), Console(stderr=True))
finally:
    loaded.set()
sampler.join()
print(time.perf_counter() - began, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, anonymous[0])
engine.close()
"""


def start(model: str, cache: str) -> tuple[float, float, float]:
    """Seconds until the engine is ready, peak resident bytes of its process, and the peak without mapped files, sampled
    every 10 ms."""
    done = subprocess.run(
        [sys.executable, "-c", _START, model],
        env={**os.environ, "REJOINDER_CACHE": cache},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, resident, anonymous = map(float, done.stdout.split())
    return seconds, resident, anonymous


def _command(cache: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A command of `rejoinder` that keeps its data in the cache folder as well."""
    return subprocess.Popen(
        [sys.executable, "-m", "cli", *arguments],
        env={**os.environ, "REJOINDER_CACHE": cache, "REJOINDER_DATA": cache},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def ask(model: str, cache: str) -> tuple[float, float]:
    """Seconds until the first words of `rejoinder ask`, and until it ends."""
    began = time.perf_counter()
    with _command(cache, "ask", "--model", model, "What is the capital of France?") as process:
        assert process.stdout is not None
        os.read(process.stdout.fileno(), 1)
        first_words_s = time.perf_counter() - began
        process.stdout.read()
    return first_words_s, time.perf_counter() - began


def serve(model: str, cache: str) -> float:
    """Seconds until `rejoinder serve` is ready, which is told how many conversations to admit: it would try that."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    began = time.perf_counter()
    with _command(cache, "serve", "--model", model, "--port", str(port), "--max-conversations", "2") as process:
        while process.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1).close()
                break
            except OSError:
                time.sleep(0.02)
        seconds = time.perf_counter() - began
        process.terminate()
    return seconds


def main() -> None:
    """Run with the models of the command line."""
    table = Table("model", "start", "seconds", "peak memory, GB", "without mapped files, GB")
    later = Table("model", "first words, s", "end, s", "server ready, s")
    for model in sys.argv[1:] or (QWEN_05B.name, QWEN_15B.name):
        with tempfile.TemporaryDirectory() as cache:
            for label in ("first", "second"):
                seconds, *peaks = start(model, cache)
                table.add_row(model, label, f"{seconds:.1f}", *(f"{peak / 1e9:.2f}" for peak in peaks))
            runs = [(*ask(model, cache), serve(model, cache)) for _ in range(1 + _RUNS)]
            later.add_row(model, *(f"{statistics.median(each):.1f}" for each in zip(*runs[1:], strict=True)))
    Console().print(table, later)


if __name__ == "__main__":
    main()
