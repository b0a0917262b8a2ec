"""What was computed is found again, within bounds, and never taken from a damaged or foreign file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from model.hub.computed_files import ComputedFiles


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path))
    return tmp_path / "things"


def test_what_was_computed_is_found_under_its_whole_key_only() -> None:
    files = ComputedFiles("things", 4, 1000)
    assert files.read("model", "1") is None
    files.write(b"content", "model", "1")
    assert files.read("model", "1") == b"content"
    assert files.read("model", "2") is files.read("model") is files.read("model1") is None


def test_a_damaged_or_foreign_file_counts_as_none_and_is_written_again(cache: Path) -> None:
    files = ComputedFiles("things", 4, 1000)
    files.write(b"content", "a")
    (path,) = cache.iterdir()
    whole = path.read_bytes()
    for damaged in (b"", whole[:20], whole[:-1], whole + b"x", b"x" + whole[1:]):
        path.write_bytes(damaged)
        assert files.read("a") is None
    files.write(b"other", "b")
    path.write_bytes(next(one for one in cache.iterdir() if one != path).read_bytes())
    assert files.read("a") is None, "the file of another key"
    files.write(b"content", "a")
    assert files.read("a") == b"content"


def test_those_used_least_recently_are_deleted() -> None:
    files = ComputedFiles("things", 3, 1000)
    for n, key in enumerate("abc"):
        files.write(b"x" * 300, key)
        os.utime(files._path((key,)), (n, n))
    assert files.read("a"), "it is used, and so the newest"
    files.write(b"x" * 300, "d")
    assert [key for key in "abcd" if files.read(key)] == ["a", "c", "d"]
    files.write(b"x" * 900, "e")
    assert [key for key in "abcde" if files.read(key)] == ["e"]
    files.write(b"x" * 1001, "f")
    assert files.read("f") is None, "it is larger than all may be"


def test_a_folder_that_cannot_be_written_is_logged(cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    cache.write_text("a file where the folder should be")
    files = ComputedFiles("things", 3, 1000)
    files.write(b"content", "a")
    assert "could not be kept" in caplog.text
    assert files.read("a") is None
