"""The machine is measured once, and again when it may have changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from server.serving import machine_speed as module
from server.serving.machine_speed import MachineSpeed, machine_speed


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path))
    return tmp_path


@pytest.fixture
def measurements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The machines that were measured; each measurement is faster than the one before."""
    measured: list[str] = []

    def measure(name: str) -> MachineSpeed:
        measured.append(name)
        return MachineSpeed(name, 10.0 * len(measured), 100.0, 100.0, 1 << 34)

    monkeypatch.setattr(module, "_measure_cpu", measure)
    return measured


def test_this_machine_reads_weights_and_multiplies(cache: Path) -> None:
    speed = machine_speed("cpu")
    assert 0.1 < speed.gigabytes_per_second < 10_000
    assert 0.1 < speed.gigaflops < 1_000_000
    assert speed.memory_bytes > 1 << 28
    assert json.loads((cache / "machine.json").read_text())["measured"].keys() == {speed.machine}


def test_it_is_measured_once(cache: Path, measurements: list[str]) -> None:
    assert machine_speed("cpu") == machine_speed("cpu")
    assert len(measurements) == 1
    assert machine_speed("cpu", again=True).gigabytes_per_second == 20
    assert machine_speed("cpu").gigabytes_per_second == 20


def test_another_machine_with_the_same_cache_is_measured_too(
    cache: Path, measurements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = machine_speed("cpu")
    with monkeypatch.context() as patch:
        patch.setattr(module, "available_cores", lambda: 64)
        assert machine_speed("cpu") != first
    assert machine_speed("cpu") == first
    assert len(measurements) == 2


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"version": 0, "measured": {}}', '{"version": 3, "measured": {"a": 1}}']
)
def test_a_damaged_file_is_measured_again(cache: Path, measurements: list[str], content: str) -> None:
    (cache / "machine.json").write_text(content)
    assert machine_speed("cpu").gigabytes_per_second == 10
    assert machine_speed("cpu").gigabytes_per_second == 10


def test_a_cache_that_cannot_be_written_only_warns(
    cache: Path, measurements: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("REJOINDER_CACHE", str(cache / "file"))
    (cache / "file").touch()
    assert machine_speed("cpu").gigabytes_per_second == 10
    assert "could not be saved" in caplog.text
