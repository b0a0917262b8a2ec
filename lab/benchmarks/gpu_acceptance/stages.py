"""The stages, and how one runs in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field

from lab.benchmarks.gpu_acceptance.call import Call
from lab.benchmarks.gpu_acceptance.report import StageReport, read_report


@dataclass(frozen=True)
class Stage:
    """A stage.

    Attributes:
        module, function: what runs it, in this package.
        deadline_s: it is killed after this time.
        arguments: of the function, after the context.
        compiles: whether it compiles kernels, also on a CPU; otherwise Triton interprets them there.
    """

    name: str
    module: str
    function: str
    deadline_s: float
    arguments: tuple[int, ...] = field(default=())
    compiles: bool = False


PARTS = {
    "kernels": (
        Stage("compile", "compiling", "run", 240, compiles=True),
        Stage("machine", "machine", "run", 60),
        Stage("correctness", "correctness", "run", 150),
        Stage("kernels", "kernels", "run", 100),
        Stage("failure", "failure", "run", 45),
        Stage("speed-0.5b", "speed", "run_small", 90),
        Stage("speed-1.5b", "speed", "run_large", 90),
        Stage("crowds", "crowds", "run", 150),
        Stage("blocks", "blocks", "run", 60),
        Stage("conversion", "conversion", "run", 90),
        Stage("sanitizer", "sanitizer", "run", 120),
    ),
    "models": (
        Stage("weights", "weights", "run", 150),
        Stage("text", "text", "run", 240),
        Stage("baseline", "baseline", "run", 200),
        *(Stage(f"server-{count}", "server", "run", 120, arguments=(count,)) for count in (1, 4, 16, 64)),
        Stage("speech", "speech", "run", 120),
        Stage("adapter", "adapter", "run", 150),
    ),
}
"""The stages of each command, in order of importance: when the time is over, the last ones have not run."""

STAGES = tuple(stage for part in PARTS.values() for stage in part)

_LEAST_S = 5.0
"""A stage is not started with less time than this."""


def run_in_process(stage: Stage, call: Call, left_s: float) -> StageReport:
    """Run a stage in a new process, and kill it and its children at its deadline.

    Args:
        left_s: seconds that are left for all remaining stages.
    """
    deadline_s = min(stage.deadline_s, left_s)
    results = call.out / f"{stage.name}.jsonl"
    results.unlink(missing_ok=True)
    if deadline_s < _LEAST_S:
        return StageReport(stage.name, problem="not run: no time was left", interrupted=True)
    command = [sys.executable, "-m", "lab.benchmarks.gpu_acceptance", "--stage", stage.name, *call.options]
    interpreted = call.cpu and not stage.compiles
    interrupted = False
    with (call.out / f"{stage.name}.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, "TRITON_INTERPRET": "1" if interpreted else "0"},
        )
        try:
            status = process.wait(deadline_s)
            problem = "" if status == 0 else f"its process ended with status {status}: see {stage.name}.log"
        except subprocess.TimeoutExpired:
            problem, interrupted = f"killed after {deadline_s:.0f} s", deadline_s < stage.deadline_s
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return read_report(stage.name, results, problem, interrupted=interrupted)
