"""The kernels compile for a GPU on machines that have none. The command compiles them for more targets."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


STEP = {"begin", "settle", "attend", "predict_merge", "project", "gate_up", "choose"}
DRAFTER = {"read_features", "attend_block", "score", "compare", "read_draft", "store_drafts"}


@pytest.mark.proof
@pytest.mark.parametrize(
    ("options", "names", "splits"),
    [
        (
            ["--batches", "1", "--model", "0.5b", "--weights", "stored"],
            STEP | DRAFTER | {"project_blocks", "gate_up_blocks", "predict_tile_blocks"},
            {"1", "3", "7"},
        ),
        (
            ["--batches", "64", "--model", "1.5b", "--weights", "bfloat16", "--dependent"],
            STEP | DRAFTER - {"read_draft"} | {"predict_tile"},
            {"1", "2", "3", "6"},
        ),
    ],
    ids=["one conversation, weights in blocks", "64 conversations, kernels that overlap"],
)
def test_every_kernel_compiles_for_an_h100(options: list[str], names: set[str], splits: set[str]) -> None:
    """`splits` are the numbers of parts that the last program adds up. The drafter's weights are bfloat16."""
    pytest.importorskip("triton", reason='Triton is not installed: pip install -e ".[test]"')
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
    assert {line.split()[2] for line in lines} == names | {"attend_ragged"}
    assert {split for line in lines for split in re.findall(r"splits=(\d+)", line)} == splits
    stacks = [int(size) for size in re.findall(r"(\d+) B stack", done.stdout)]
    assert len(stacks) == len(lines) and max(stacks) <= 64, done.stdout  # registers that did not fit
