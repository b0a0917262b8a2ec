"""The command line: runs the stages of a part that have not held yet, each in a process of its own, or a single stage
in the process that is made for it."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab.benchmarks.gpu_acceptance.call import Call
from lab.benchmarks.gpu_acceptance.report import StageReport, Summary, print_table
from lab.benchmarks.gpu_acceptance.stages import PARTS, STAGES, Stage, run_in_process

_STAGES_AT_A_TIME_ON_CPU = 2
"""On a GPU one: its times are the result. On a CPU they mean nothing."""

ACCEPTED, FAILED, NOT_FINISHED = 0, 1, 3
"""Exit statuses."""


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.gpu_acceptance", description="Accept the GPU path.")
    parser.add_argument("part", nargs="?", choices=PARTS, default="kernels", help="what to check")
    parser.add_argument("--cpu", action="store_true", help="tiny shapes on the CPU: checks the acceptance itself")
    parser.add_argument("--minutes", type=float, default=8, help="end within this time; another call runs what is left")
    parser.add_argument("--out", type=Path, default=Path("build/gpu_acceptance"), help="folder of the results")
    parser.add_argument("--weights", type=Path, help="folder of the models, or of their slices")
    parser.add_argument("--adapter", type=Path, help="file of a finished adapter; the bundled one otherwise")
    parser.add_argument("--stage", choices=[stage.name for stage in STAGES], help="run this stage in this process")
    arguments = parser.parse_args()
    call = Call(arguments.out, arguments.cpu, arguments.weights, arguments.adapter)
    call.out.mkdir(parents=True, exist_ok=True)
    if arguments.stage is not None:
        return run_here(arguments.stage, call)
    return run_part(arguments.part, call, arguments.minutes)


def run_part(part: str, call: Call, minutes: float) -> int:
    """Run the stages that have not held in an earlier call with the same code and device. Returns the exit status."""
    began = time.monotonic()
    stages = PARTS[part]
    summary = Summary.open(part, call)
    held = {report.name for report in summary.reports if report.held}

    def run(stage: Stage) -> StageReport:
        report = run_in_process(stage, call, minutes * 60 - (time.monotonic() - began))
        print(f"{stage.name}: {report.summary}", file=sys.stderr, flush=True)
        return report

    print(f"held before: {', '.join(sorted(held)) or 'nothing'}", file=sys.stderr)
    summary.expect([stage.name for stage in stages])
    first = 1 if stages[0].name not in held else 0  # later ones need what it leaves: kernels, or weights
    with ThreadPoolExecutor(_STAGES_AT_A_TIME_ON_CPU if call.cpu else 1) as pool:
        for group in (stages[:first], stages[first:]):
            for report in pool.map(run, [stage for stage in group if stage.name not in held]):
                summary.add(report)
    summary.archive()
    print_table(summary.reports, time.monotonic() - began)
    if summary.held:
        return ACCEPTED
    return FAILED if any(report.failed for report in summary.reports) else NOT_FINISHED


def run_here(name: str, call: Call) -> int:
    """Run one stage in this process. Its checks are recorded as they end, so a stage that is killed keeps them."""
    from lab.benchmarks.gpu_acceptance.context import Context

    stage = next(stage for stage in STAGES if stage.name == name)
    module = importlib.import_module(f"lab.benchmarks.gpu_acceptance.{stage.module}")
    getattr(module, stage.function)(Context.open(name, call), *stage.arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
