"""Weights that arrive in slices are joined, and what is missing or damaged is said."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from lab.benchmarks.gpu_acceptance.weights import SUMS, BadSlices, join_slices

CONTENT = bytes(range(256)) * 9


@pytest.fixture
def slices(tmp_path: Path) -> Path:
    """A file in three slices, as `split` and `sha256sum` make them."""
    folder = tmp_path / "slices"
    folder.mkdir()
    for number in range(3):
        (folder / f"model.q4.gguf.{number:03}").write_bytes(CONTENT[number * 1000 : (number + 1) * 1000])
    (folder / SUMS).write_text(f"{'0' * 64}  other.gguf\n{sha256(CONTENT).hexdigest()} *folder/model.q4.gguf\n")
    return folder


def test_slices_are_joined_once(slices: Path, tmp_path: Path) -> None:
    (path,) = join_slices(slices, tmp_path / "joined")
    assert path.name == "model.q4.gguf" and path.read_bytes() == CONTENT
    modified = path.stat().st_mtime_ns
    assert join_slices(slices, tmp_path / "joined") == [path] and path.stat().st_mtime_ns == modified


def test_a_file_that_was_cut_off_is_joined_again(slices: Path, tmp_path: Path) -> None:
    (path,) = join_slices(slices, tmp_path / "joined")
    path.write_bytes(CONTENT[:5])
    assert join_slices(slices, tmp_path / "joined") == [path] and path.read_bytes() == CONTENT


def test_a_missing_slice_is_named(slices: Path, tmp_path: Path) -> None:
    (slices / "model.q4.gguf.001").unlink()
    with pytest.raises(BadSlices, match=r"slice 001 of model\.q4\.gguf is missing"):
        join_slices(slices, tmp_path)


@pytest.mark.parametrize("change", ["damaged", "last missing"])
def test_slices_with_another_checksum_are_refused_and_leave_nothing(slices: Path, tmp_path: Path, change: str) -> None:
    last = slices / "model.q4.gguf.002"
    if change == "damaged":
        last.write_bytes(last.read_bytes()[:-1] + b"x")
    else:
        last.unlink()
    with pytest.raises(BadSlices, match="whose checksum is not the one in SHA256SUMS"):
        join_slices(slices, tmp_path / "joined")
    assert list((tmp_path / "joined").iterdir()) == []


def test_checksums_are_demanded(slices: Path, tmp_path: Path) -> None:
    (slices / SUMS).write_text(f"{'0' * 64}  other.gguf\n")
    with pytest.raises(BadSlices, match=r"SHA256SUMS has no line for model\.q4\.gguf"):
        join_slices(slices, tmp_path)
    (slices / SUMS).unlink()
    with pytest.raises(BadSlices, match="has slices and no SHA256SUMS"):
        join_slices(slices, tmp_path)


def test_a_folder_without_slices_has_nothing_to_join(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"whole")
    assert join_slices(tmp_path, tmp_path / "joined") == []
