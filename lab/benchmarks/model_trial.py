"""Which model `--model auto` chooses in fresh starts of the server, with other processes busy or not.

    python -m lab.benchmarks.model_trial [STARTS] [--busy LOOPS]

Each start has an empty data folder, so that it tries the installed models; what is in the cache stays. LOOPS processes
count meanwhile. Prints the model, what its trial measured, and the seconds from the command to `Ready`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from server.serving.model_record import RECORD_FILE

_LOOP = "while True: pass"


def start() -> None:
    """One fresh start: prints a row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        began, model = time.perf_counter(), "none"
        command = [sys.executable, "-m", "cli", "serve", "--port", "0"]
        environment = {**os.environ, "REJOINDER_DATA": folder}
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
            assert process.stderr is not None  # it is a pipe
            for line in process.stderr:
                if "--model auto is" in line:
                    model = line.split("--model auto is ")[1].split(":")[0]
                if "Ready:" in line:
                    break
            seconds = time.perf_counter() - began
            process.terminate()
            process.stderr.read()
        (tried,) = json.loads((Path(folder) / RECORD_FILE).read_text())["machines"].values()
        trials = "; ".join(
            f"{name}: {trial['median_ms']} ms, {trial['conversations']} at once, others {trial['others']:.0%}"
            for name, history in tried.items()
            if (trial := history["trial"])
        )
        print(f"| {model} | {trials} | {seconds:.0f} |", flush=True)


def main() -> None:
    """Run with the arguments of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("starts", nargs="?", type=int, default=10)
    parser.add_argument("--busy", type=int, default=0)
    arguments = parser.parse_args()
    loops = [subprocess.Popen([sys.executable, "-c", _LOOP]) for _ in range(arguments.busy)]
    try:
        print("| chosen | trials | seconds to ready |\n|---|---|---|", flush=True)
        for _ in range(arguments.starts):
            start()
    finally:
        for loop in loops:
            loop.kill()


if __name__ == "__main__":
    main()
