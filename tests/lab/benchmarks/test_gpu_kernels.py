"""The kernels compile for a GPU on machines that have none. The command compiles them for more targets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("options", "splits"),
    [
        (["--batches", "1", "--weights", "bfloat16"], {"1", "3", "6", "9"}),
        (["--batches", "64", "--model", "0.5b", "--weights", "bfloat16"], {"1", "5"}),
        (["--batches", "1", "--model", "0.5b", "--weights", "stored"], {"1", "7"}),
    ],
    ids=["one conversation", "64 conversations", "weights in blocks"],
)
def test_every_kernel_compiles_for_an_h100(options: list[str], splits: set[str]) -> None:
    """`splits` are the numbers of parts that the last program adds up."""
    suffix = "_blocks" if "stored" in options else ""
    pytest.importorskip("triton")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "lab.benchmarks.gpu_kernels", "--targets", "90", *options],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()[1:]
    names = {f"{name}{suffix}" for name in ("project", "gate_up", "predict_tile")}
    names |= {"attend", "predict_merge", "choose"}
    assert {line.split()[2] for line in lines} == names
    assert {split for line in lines for split in re.findall(r"splits=(\d+)", line)} == splits
    stacks = [int(size) for size in re.findall(r"(\d+) B stack", done.stdout)]
    assert len(stacks) == len(lines) and max(stacks) <= 64, done.stdout  # registers that did not fit
