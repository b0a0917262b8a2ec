"""The acceptance of the GPU path, with tiny shapes on a CPU, and with nothing installed that a rented GPU may lack."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.benchmarks.gpu_acceptance.__main__ import ACCEPTED, FAILED, NOT_FINISHED, run_part
from lab.benchmarks.gpu_acceptance.call import Call
from lab.benchmarks.gpu_acceptance.report import Result, StageReport, print_table, read_report
from lab.benchmarks.gpu_acceptance.stages import PARTS, Stage, run_in_process

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


def _run(part: str, out: Path, env: Mapping[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lab.benchmarks.gpu_acceptance", part, "--cpu", "--out", str(out), *options]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**env}, check=False)


def _results(done: subprocess.CompletedProcess[str], out: Path, part: str) -> dict[str, list[Any]]:
    """The checks of each stage, all of which held."""
    logs = "\n".join(path.read_text()[-2000:] for path in sorted(out.glob("*.log")))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}\n{logs}"
    found = json.loads((out / f"gpu_acceptance_{part}.json").read_text())
    assert found["held"] and found["cpu"]
    results = {stage["name"]: stage["results"] for stage in found["stages"]}
    held = [result for stage in results.values() for result in stage if result["held"]]
    assert done.stdout.splitlines()[-1].startswith(f"accepted: {len(held)} checks held, 0 failed")
    with tarfile.open(out / "gpu_acceptance.tar.gz") as archive:
        assert {f"gpu_acceptance_{part}.json", *(f"{name}.log" for name in results)} <= set(archive.getnames())
    return results


@pytest.mark.proof
def test_every_check_of_the_kernels_that_needs_no_gpu_holds(
    tmp_path: Path, little_more_than_torch: dict[str, str]
) -> None:
    results = _results(_run("kernels", tmp_path, little_more_than_torch), tmp_path, "kernels")
    assert list(results) == [
        "compile", "machine", "correctness", "kernels", "failure", "speed-0.5b", "speed-1.5b", "crowds", "blocks",
        "conversion", "sanitizer",
    ]  # fmt: skip
    assert sum(result["held"] is True for stage in results.values() for result in stage) >= 20


@pytest.mark.proof
def test_every_check_of_the_models_holds_for_a_tiny_one_and_nothing_runs_again(tmp_path: Path) -> None:
    done = _run("models", tmp_path, os.environ)
    results = _results(done, tmp_path, "models")
    assert list(results) == [
        "weights", "text", "baseline", "server-1", "server-4", "server-16", "server-64", "speech", "adapter",
    ]  # fmt: skip
    for stage in set(results) - {"baseline", "speech"}:  # they need transformers and installed speech models
        assert all(result["held"] for result in results[stage]), results[stage]
    assert results["text"][0]["figures"]["equal"] == results["text"][0]["figures"]["of"] == 4
    assert [results[f"server-{count}"][0]["figures"]["turns"] for count in (1, 4, 16, 64)] == [1, 4, 16, 64]
    log = tmp_path / "text.log"
    log.write_text("from the first call")
    again = _run("models", tmp_path, os.environ)
    assert _results(again, tmp_path, "models") == results and log.read_text() == "from the first call"
    assert "held before: adapter" in again.stderr


@pytest.mark.slow
def test_without_a_gpu_the_full_acceptance_fails(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    report = run_in_process(Stage("machine", "machine", "run", 60), Call(tmp_path, cpu=False), 60)
    assert report.failed
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
    report = run_in_process(Stage("crowds", "crowds", "run", 2), Call(tmp_path, cpu=True), 60)
    assert [(result.name, result.held) for result in report.results] == [("first", True), ("second", False)]
    assert report.problem == "killed after 2 s" and not report.held
    print_table([report], 2.0)
    assert capsys.readouterr().out.splitlines()[-1] == (
        "NOT ACCEPTED: 1 checks held, 1 failed, ended early: crowds, 2 s"
    )


def test_a_stage_for_which_no_time_is_left_waits_for_another_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run_in_process(Stage("machine", "machine", "run", 60), Call(tmp_path, cpu=True), 1)
    assert report.problem == "not run: no time was left" and not report.held and not report.failed
    print_table([report], 2.0)
    assert capsys.readouterr().out.splitlines()[-1] == (
        "NOT FINISHED: 0 checks held, 0 failed, 2 s; the same command again runs machine"
    )


def test_a_stage_that_records_nothing_is_not_accepted(tmp_path: Path) -> None:
    assert not read_report("machine", tmp_path / "none.jsonl", "").held


@pytest.fixture
def fake_stages(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[StageReport]]:
    """Stages of a part that end as they are told, call after call."""
    outcomes: dict[str, list[StageReport]] = {}

    def run(stage: Stage, call: Call, left_s: float) -> StageReport:
        return outcomes[stage.name].pop(0)

    monkeypatch.setitem(PARTS, "kernels", tuple(Stage(name, "", "", 60) for name in ("first", "second", "third")))
    monkeypatch.setattr("lab.benchmarks.gpu_acceptance.__main__.run_in_process", run)
    return outcomes


def test_another_call_runs_what_failed_or_was_interrupted_and_nothing_else(
    tmp_path: Path, fake_stages: dict[str, list[StageReport]]
) -> None:
    held = (Result("check", True, 1.0, {"ms": 2.0}),)
    fake_stages |= {
        "first": [StageReport("first", held)],
        "second": [StageReport("second", (Result("check", False, 1.0),)), StageReport("second", held)],
        "third": [StageReport("third", problem="killed", interrupted=True), StageReport("third", held)],
    }
    call = Call(tmp_path, cpu=True)
    assert run_part("kernels", call, 8) == FAILED
    saved = json.loads((tmp_path / "gpu_acceptance_kernels.json").read_text())
    assert not saved["held"] and [stage["name"] for stage in saved["stages"]] == ["first", "second", "third"]
    assert run_part("kernels", call, 8) == ACCEPTED
    assert not any(fake_stages.values())


def test_a_call_whose_time_was_over_is_not_finished(tmp_path: Path, fake_stages: dict[str, list[StageReport]]) -> None:
    over = StageReport("third", problem="not run: no time was left", interrupted=True)
    fake_stages |= {name: [StageReport(name, (Result("check", None, 1.0),))] for name in ("first", "second")}
    fake_stages["third"] = [over]
    assert run_part("kernels", Call(tmp_path, cpu=True), 8) == NOT_FINISHED


def test_everything_runs_again_with_other_weights_or_a_damaged_file(
    tmp_path: Path, fake_stages: dict[str, list[StageReport]]
) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    report = {name: StageReport(name, (Result("check", True, 1.0),)) for name in ("first", "second", "third")}
    for prepare in (lambda: None, lambda: (weights / "model.gguf").write_text("more"),
                    lambda: (tmp_path / "out" / "gpu_acceptance_kernels.json").write_text("{")):  # fmt: skip
        prepare()
        fake_stages |= {name: [report[name]] for name in report}
        (tmp_path / "out").mkdir(exist_ok=True)
        assert run_part("kernels", Call(tmp_path / "out", cpu=True, weights=weights), 8) == ACCEPTED
        assert not any(fake_stages.values())
