"""The command line: runs every stage in a process of its own, or a single stage in the process that is made for it."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab.benchmarks.gpu_acceptance.report import StageReport, print_table, save_json
from lab.benchmarks.gpu_acceptance.stages import STAGES, Stage, run_in_process

_STAGES_AT_A_TIME_ON_CPU = 2
"""On a GPU one: its times are the result. On a CPU they mean nothing."""


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.gpu_acceptance", description="Accept the GPU path.")
    parser.add_argument("--cpu", action="store_true", help="tiny shapes on the CPU: checks the acceptance itself")
    parser.add_argument(
        "--minutes", type=float, default=9, help="end within this time; stages that are left do not run"
    )
    parser.add_argument("--out", type=Path, default=Path("build/gpu_acceptance"), help="folder of the results")
    parser.add_argument("--stage", choices=[stage.name for stage in STAGES], help="run this stage in this process")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.stage is not None:
        return run_here(arguments.stage, arguments.out, arguments.cpu)
    began = time.monotonic()

    def run(stage: Stage) -> StageReport:
        left = arguments.minutes * 60 - (time.monotonic() - began)
        report = run_in_process(stage, arguments.out, left, cpu=arguments.cpu)
        print(f"{stage.name}: {report.summary}", file=sys.stderr, flush=True)
        return report

    stages = [stage for stage in STAGES if stage.on_cpu or not arguments.cpu]
    with ThreadPoolExecutor(_STAGES_AT_A_TIME_ON_CPU if arguments.cpu else 1) as pool:
        reports = list(pool.map(run, stages))
    seconds = time.monotonic() - began
    save_json(reports, arguments.out / "gpu_acceptance.json", seconds, cpu=arguments.cpu)
    print_table(reports, seconds)
    return 0 if all(report.held for report in reports) else 1


def run_here(name: str, out: Path, cpu: bool) -> int:
    """Run one stage in this process. Its checks are recorded as they end, so a stage that is killed keeps them."""
    from lab.benchmarks.gpu_acceptance.context import Context

    stage = next(stage for stage in STAGES if stage.name == name)
    module = importlib.import_module(f"lab.benchmarks.gpu_acceptance.{stage.module}")
    context = Context.open(out / f"{name}.jsonl", cpu)
    getattr(module, stage.function)(context)
    return 0


if __name__ == "__main__":
    sys.exit(main())
