"""Coverage-guided fuzzing of every decoder of bytes from outside: atheris (libFuzzer) looks for inputs that reach new
code, and gives them to the properties of `tests/test_fuzz.py` and `tests/test_fuzz_more.py`.

    pip install atheris
    python -m lab.benchmarks.fuzz --seconds 60                 # for each target
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from typing import Any


def all_targets() -> dict[str, Any]:
    """The properties of all decoders."""
    from tests import test_fuzz, test_fuzz_more

    return test_fuzz.TARGETS | test_fuzz_more.TARGETS


def fuzz_here(name: str, seconds: int) -> None:
    """Fuzz one target in this process, which libFuzzer ends."""
    import atheris

    with atheris.instrument_imports(include=["agent", "chat", "model.checkpoint", "model.hub", "server", "voice"]):
        targets = all_targets()
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", "-max_len=4096"], targets[name].hypothesis.fuzz_one_input)
    atheris.Fuzz()


def fuzz_all(seconds: int, only: str) -> int:
    """Fuzz the targets one after the other, print a table, and return how many failed."""
    import server.openmp  # noqa: F401 - before torch

    failed = 0
    print("| target | inputs | branches reached | |\n|---|---|---|---|", flush=True)
    for name in all_targets():
        if only not in name:
            continue
        command = [sys.executable, "-m", "lab.benchmarks.fuzz", "--target", name, "--seconds", str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
        log = done.stdout + done.stderr
        runs, reached = re.search(r"Done (\d+) runs", log), re.findall(r"cov: (\d+)", log)
        passed = done.returncode == 0 and runs is not None
        failed += not passed
        outcome = "no failure" if passed else "**FAILED**"
        print(f"| {name} | {runs[1] if runs else '?'} | {reached[-1] if reached else '–'} | {outcome} |", flush=True)
        if not passed:
            print(log[-4000:], file=sys.stderr)
    return failed


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--only", default="", help="targets whose name contains this")
    parser.add_argument("--target", help="fuzz this one in this process")
    arguments = parser.parse_args()
    if arguments.target is not None:
        fuzz_here(arguments.target, arguments.seconds)
    return int(fuzz_all(arguments.seconds, arguments.only) > 0)


if __name__ == "__main__":
    sys.exit(main())
