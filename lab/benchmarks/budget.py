"""What a default server costs: its start, memory, imports, and processor time and steps of a spoken turn.

    python -m lab.benchmarks.budget [MODEL]

Prints JSON. tests/lab/benchmarks/test_budget.py holds it against the table in docs/benchmarks/budget.md. Linux only.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import asyncio
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx

from lab.benchmarks.spoken_turn import record, speak

QUESTIONS = (
    "What is the capital of France?",
    "How many legs does a spider have?",
    "Why is the sky blue?",
    "Who painted the Mona Lisa?",
)
"""The first is not counted: caches are cold."""

_START_S, _LISTED_S = 120.0, 10.0

_BETWEEN_S = 2.0
"""From one conversation to the next: a server that carries one needs a moment to end it."""

_PROGRAM = """
import signal, sys
from pathlib import Path

listing = Path(sys.argv[1])
signal.signal(signal.SIGUSR1, lambda *_: listing.write_text("\\n".join(sys.modules)))
sys.argv[1:] = ["serve", *sys.argv[2:]]
from cli.main import main
main()
"""


@dataclass(frozen=True)
class Budget:
    """What was measured.

    Attributes:
        start_s: from the command to `Ready`, with warm caches.
        start_cpu_s: processor time of that.
        memory_mb: resident set after the turns, mapped model files included.
        turn_cpu_ms: processor time of a spoken turn of 3 to 5 s, from its session to its first words; median.
        turn_steps: forward passes that generated the response, without those that read the prompt; median.
        modules: names of all imported modules.
    """

    start_s: float
    start_cpu_s: float
    memory_mb: float
    turn_cpu_ms: float
    turn_steps: float
    modules: tuple[str, ...]


def measure(model: str) -> Budget:
    """Start a server with default options, and ask it the questions.

    Only the number of conversations is given: the first start on a machine measures it, later ones do not.
    """
    recordings = record(QUESTIONS)
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder) / "modules"
        command = [sys.executable, "-c", _PROGRAM, str(listing), "--model", model, "--port", "0", "--data", folder]
        command += ["--max-conversations", "2"]
        began = time.perf_counter()
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            try:
                address = _address(process)
                start_s, start_cpu_s = time.perf_counter() - began, _cpu_ms(process.pid) / 1000
                cpu_ms = []
                for text in QUESTIONS:
                    before = _cpu_ms(process.pid)
                    asyncio.run(speak(f"ws://{address}/v1/realtime", recordings[text], {}))
                    cpu_ms.append(_cpu_ms(process.pid) - before)
                    time.sleep(_BETWEEN_S)
                data = httpx.get(f"http://{address}/dashboard/data", timeout=_LISTED_S).json()
                steps = [turn["steps"] for turn in data["turns"]][: len(QUESTIONS) - 1]
                memory_mb = _resident_mb(process.pid)
                modules = _modules(process, listing)
            finally:
                process.terminate()
        turn_cpu_ms, turn_steps = statistics.median(cpu_ms[1:]), statistics.median(steps)
        return Budget(start_s, start_cpu_s, memory_mb, turn_cpu_ms, turn_steps, modules)


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    deadline, lines = time.monotonic() + _START_S, []
    while time.monotonic() < deadline and (line := process.stderr.readline()):
        lines.append(line)
        if match := re.search(r"Ready: http://([\w.:]+)/", line):
            return match[1]
    raise RuntimeError("the server did not start: " + "".join(lines))


def _modules(process: subprocess.Popen[str], listing: Path) -> tuple[str, ...]:
    process.send_signal(signal.SIGUSR1)
    deadline = time.monotonic() + _LISTED_S
    while not listing.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.2)  # it is being written
    return tuple(sorted(listing.read_text().splitlines()))


def _cpu_ms(pid: int) -> float:
    """Processor time of a process, all threads, in ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident_mb(pid: int) -> float:
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    print(json.dumps(asdict(measure(sys.argv[1] if len(sys.argv) > 1 else "qwen2.5-coder-0.5b"))))
