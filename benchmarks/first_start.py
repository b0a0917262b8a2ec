"""The first start of a language model and a later one: seconds until it can answer, and the peak memory of the process.

    python -m benchmarks.first_start [MODEL ...]

The first start assembles the model from its packages, repacks its weights and compiles the kernels, all in an empty
cache folder; the second one finds them there.
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
import resource, sys, time
began = time.perf_counter()
from rich.console import Console
from server.deploy.runtime import ModelOptions, load_engine
engine = load_engine(ModelOptions(sys.argv[1]), Console(stderr=True))
print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
engine.close()
"""


def start(model: str, cache: str) -> tuple[float, float]:
    """Seconds until the engine is ready, and peak bytes of its process."""
    done = subprocess.run(
        [sys.executable, "-c", _START, model],
        env={**os.environ, "REJOINDER_CACHE": cache},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, peak = done.stdout.split()
    return float(seconds), float(peak)


def main() -> None:
    """Run with the models of the command line."""
    table = Table("model", "start", "seconds", "peak memory, GB")
    for model in sys.argv[1:] or (QWEN_05B.name, QWEN_15B.name):
        with tempfile.TemporaryDirectory() as cache:
            for label in ("first", "second"):
                seconds, peak = start(model, cache)
                table.add_row(model, label, f"{seconds:.1f}", f"{peak / 1e9:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
