"""The first start of a language model and a later one: seconds until it can answer, and the peak memory of the process.

    python -m lab.benchmarks.first_start [MODEL ...]

The first start assembles the model from its packages, repacks its weights and compiles the kernels, all in an empty
cache folder; the second one finds them there. Peak memory is the peak resident set, which counts the pages of mapped
files. Linux only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from rich.console import Console
from rich.table import Table

from model.hub.catalog import QWEN_05B, QWEN_15B

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


def main() -> None:
    """Run with the models of the command line."""
    table = Table("model", "start", "seconds", "peak memory, GB", "without mapped files, GB")
    for model in sys.argv[1:] or (QWEN_05B.name, QWEN_15B.name):
        with tempfile.TemporaryDirectory() as cache:
            for label in ("first", "second"):
                seconds, *peaks = start(model, cache)
                table.add_row(model, label, f"{seconds:.1f}", *(f"{peak / 1e9:.2f}" for peak in peaks))
    Console().print(table)


if __name__ == "__main__":
    main()
