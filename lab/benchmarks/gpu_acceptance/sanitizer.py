"""compute-sanitizer over 20 passes: no kernel reads or writes outside its memory."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from lab.benchmarks.gpu_acceptance.context import Context, NotPossibleHere

_PASSES = """
import sys, torch
from lab.benchmarks.gpu_acceptance.answers import ask, running
from lab.benchmarks.gpu_acceptance.random_models import TINY, random_model
from model.nn.cuda import configure_cuda
configure_cuda()
with running(random_model(TINY, torch.device(sys.argv[1]), "bfloat16", 2), context=320, max_slots=2) as engine:
    for graphs in (True, False):
        print(ask(engine, "hello", 20, drafting=graphs).tokens)
"""

_FOUND_ERRORS = 86


def run(context: Context) -> None:
    """Run the stage."""
    context.check("no kernel leaves its memory", lambda: sanitized(context))


def sanitized(context: Context) -> Mapping[str, Any]:
    """Two answers of 20 tokens under compute-sanitizer's memcheck; without it on a CPU, where it finds nothing."""
    command = [sys.executable, "-c", _PASSES, str(context.device)]
    if context.on_gpu:
        tool = shutil.which("compute-sanitizer") or shutil.which("compute-sanitizer", path="/usr/local/cuda/bin")
        if tool is None:
            raise NotPossibleHere("compute-sanitizer is not installed")
        command = [tool, "--error-exitcode", str(_FOUND_ERRORS), "--print-limit", "5", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    print(done.stdout, done.stderr, sep="\n")  # into the stage's log
    lines = [line for line in done.stdout.splitlines() if "=========" in line]
    if done.returncode != 0:
        raise AssertionError(f"status {done.returncode}: {lines[0] if lines else done.stderr.strip()[-200:]}")
    return {"verdict": lines[-1].strip("= ") if lines else "none"}
