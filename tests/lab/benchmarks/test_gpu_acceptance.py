"""The acceptance of the GPU path, with tiny shapes on a CPU, and with nothing installed that a rented GPU may lack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lab.benchmarks.gpu_acceptance.report import print_table, read_report
from lab.benchmarks.gpu_acceptance.stages import Stage, run_in_process

ROOT = Path(__file__).parents[3]

ABSENT = """
voice server llvmlite huggingface_hub platformdirs rich typer pydantic starlette uvicorn websockets cryptography
faster_whisper ctranslate2 piper onnxruntime soxr sounddevice webrtcvad transformers llama_cpp
""".split()


@pytest.fixture
def little_more_than_torch(tmp_path: Path) -> dict[str, str]:
    """An environment in which none of `ABSENT` can be imported, in child processes neither."""
    hide = f"import sys\nsys.modules.update(dict.fromkeys({ABSENT!r}))\n"
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "sitecustomize.py").write_text(hide)
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path / "hidden"), str(ROOT)))}


def test_every_check_that_needs_no_gpu_holds(tmp_path: Path, little_more_than_torch: dict[str, str]) -> None:
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-m", "lab.benchmarks.gpu_acceptance", "--cpu", "--minutes", "4", "--out", str(out)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=little_more_than_torch,
        check=False,
    )
    logs = "\n".join(path.read_text()[-2000:] for path in sorted(out.glob("*.log")))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    found = json.loads((out / "gpu_acceptance.json").read_text())
    assert found["held"] and found["cpu"]
    assert [stage["name"] for stage in found["stages"]] == [
        "machine",
        "correctness",
        "kernels",
        "speed-0.5b",
        "crowds",
        "blocks",
        "conversion",
    ]
    held = [result for stage in found["stages"] for result in stage["results"] if result["held"]]
    assert len(held) >= 20
    assert done.stdout.splitlines()[-1].startswith(f"accepted: {len(held)} checks held, 0 failed")


def test_without_a_gpu_the_full_acceptance_fails(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    report = run_in_process(Stage("machine", "machine", "run", 60), tmp_path, 60, cpu=False)
    assert not report.held
    assert "there is no CUDA device" in (tmp_path / "machine.log").read_text()


def test_a_stage_is_killed_at_its_deadline_and_keeps_what_it_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A check hangs after another one held."""
    package = tmp_path / "lab" / "benchmarks" / "gpu_acceptance"
    package.mkdir(parents=True)
    program = """
import json, sys, time
path = sys.argv[sys.argv.index("--out") + 1] + "/crowds.jsonl"
result = {"name": "first", "held": True, "seconds": 1.0, "figures": {"ms": 3.0}, "problem": ""}
with open(path, "w") as file:
    for line in ({"begun": "first"}, {"result": result}, {"begun": "second"}):
        print(json.dumps(line), file=file, flush=True)
time.sleep(1000)
"""
    for folder in (package.parent.parent, package.parent, package):
        (folder / "__init__.py").touch()
    (package / "__main__.py").write_text(program)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr("lab.benchmarks.gpu_acceptance.stages._LEAST_S", 0.5)
    report = run_in_process(Stage("crowds", "crowds", "run", 2), tmp_path, 60, cpu=True)
    assert [(result.name, result.held) for result in report.results] == [("first", True), ("second", False)]
    assert report.problem == "killed after 2 s" and not report.held
    print_table([report], 2.0)
    assert capsys.readouterr().out.splitlines()[-1] == (
        "NOT ACCEPTED: 1 checks held, 1 failed, ended early: crowds, 2 s"
    )


def test_a_stage_for_which_no_time_is_left_is_not_accepted(tmp_path: Path) -> None:
    report = run_in_process(Stage("machine", "machine", "run", 60), tmp_path, 1, cpu=True)
    assert report.problem == "not run: no time was left" and not report.held


def test_a_stage_that_records_nothing_is_not_accepted(tmp_path: Path) -> None:
    assert not read_report("machine", tmp_path / "none.jsonl", "").held
