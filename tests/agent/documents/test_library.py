"""The library: what an update reads, and that nothing is lost."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agent.documents import library as module
from agent.documents.library import Library, Update, Vectors
from tests.agent.documents.sample_documents import DIMENSIONS, HOUSE, embed


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "house"
    (folder / "garden").mkdir(parents=True)
    (folder / "house.md").write_text(HOUSE)
    (folder / "garden" / "garden.txt").write_text("Water the tomatoes.")
    (folder / "photo.jpg").write_bytes(b"jpg")
    (folder / ".hidden.txt").write_text("hidden")
    return folder


@pytest.fixture
def library(tmp_path: Path) -> Iterator[Library]:
    library = Library(tmp_path / "data" / "documents.sqlite", DIMENSIONS)
    yield library
    library.close()


def update(library: Library, name: str = "house") -> Update:
    return library.update(name, embed, "words")


def texts(library: Library) -> list[str]:
    ids, _, _ = library.vectors([folder.name for folder in library.folders()])
    return [found.passage.text for found in library.passages(ids.tolist())]


def test_only_what_has_changed_is_read_again(library: Library, folder: Path) -> None:
    assert library.add(folder) == "house"
    first = update(library)
    assert (first.added, first.ignored) == (["garden/garden.txt", "house.md"], 1)
    embedded: list[str] = []

    def counting(texts: Sequence[str]) -> Vectors:
        embedded.extend(texts)
        return embed(texts)

    (folder / "garden" / "garden.txt").write_text("Water the beans.")
    os.utime(folder / "house.md", (1, 1))  # touched, but the same
    second = library.update("house", counting, "words")
    assert (second.changed, second.unchanged, second.added, second.removed) == (["garden/garden.txt"], 1, [], [])
    assert embedded == ["garden. Water the beans."]
    (folder / "house.md").unlink()
    assert update(library).removed == ["house.md"]
    assert texts(library) == ["Water the beans."]
    assert library.matching("tomatoes") == [] and len(library.matching("bean")) == 1
    assert library.update("house", counting, "another model").changed == ["garden/garden.txt"]


def test_a_file_that_cannot_be_read_loses_nothing_and_is_read_when_it_can_be(library: Library, folder: Path) -> None:
    library.add(folder)
    update(library)
    good = (folder / "house.md").read_text()
    (folder / "house.md").write_bytes(b"\0\1\xff")
    (folder / "broken.pdf").write_bytes(b"%PDF")
    broken = update(library)
    assert [path for path, _ in broken.errors] == ["broken.pdf", "house.md"]
    (listed,) = library.folders()
    assert [path for path, _ in listed.errors] == ["broken.pdf", "house.md"]
    assert any("red handle" in text for text in texts(library))
    assert update(library).errors == broken.errors  # it is tried again, and reported again
    (folder / "house.md").write_text(good)
    (folder / "broken.pdf").unlink()
    assert update(library).errors == []
    assert library.folders()[0].errors == ()


def test_a_folder_that_is_gone_keeps_its_passages(library: Library, folder: Path, tmp_path: Path) -> None:
    library.add(folder)
    update(library)
    folder.rename(tmp_path / "unmounted")
    with pytest.raises(OSError, match="nothing was changed"):
        update(library)
    assert len(texts(library)) == 4


def test_a_killed_update_goes_on_where_it_stopped(library: Library, folder: Path) -> None:
    library.add(folder)
    calls = 0

    def killed(texts: Sequence[str]) -> Vectors:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return embed(texts)

    with pytest.raises(KeyboardInterrupt):
        library.update("house", killed, "words")
    assert texts(library) == ["Water the tomatoes."]
    assert update(library).added == ["house.md"]


def test_removing_a_folder_leaves_its_text_nowhere(library: Library, folder: Path, tmp_path: Path) -> None:
    library.add(folder)
    update(library)
    assert library.remove("house").passages == 4
    assert library.folders() == []
    library.erase_removed()
    assert b"tomato" not in b"".join(file.read_bytes() for file in (tmp_path / "data").iterdir())
    assert (folder / "house.md").exists()


@pytest.mark.parametrize("removed", [True, False])
def test_text_that_is_in_no_file_any_more_is_nowhere(
    library: Library, folder: Path, tmp_path: Path, removed: bool
) -> None:
    update_of = library.add(folder)
    (folder / "secret.md").write_text("The combination is xylophone.")
    update(library, update_of)

    def kept() -> bytes:
        return b"".join(file.read_bytes() for file in (tmp_path / "data").iterdir())

    assert b"ylophon" in kept()
    if removed:
        (folder / "secret.md").unlink()
    else:
        (folder / "secret.md").write_text("The combination has changed.")
    update(library, update_of)
    assert b"ylophon" in kept()
    library.erase_removed()
    assert b"ylophon" not in kept()  # while the library is open


def test_what_a_killed_process_removed_is_erased_by_the_next_one(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "data" / "documents.sqlite"
    script = (
        "import os, sys; from pathlib import Path; from agent.documents.library import Library;"
        "from tests.agent.documents.sample_documents import DIMENSIONS, embed;"
        "library = Library(Path(sys.argv[1]), DIMENSIONS); library.add(Path(sys.argv[2]));"
        "library.update('house', embed, 'words'); library.remove('house'); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(path), str(folder)], check=False).returncode == 9
    library = Library(path, DIMENSIONS)
    assert b"tomatoes" in b"".join(file.read_bytes() for file in path.parent.iterdir())
    library.erase_removed()
    assert b"tomatoes" not in b"".join(file.read_bytes() for file in path.parent.iterdir())
    library.close()


def test_names_and_folders_are_checked(library: Library, folder: Path, tmp_path: Path) -> None:
    library.add(folder, "mill lane")
    assert library.add(folder) == "mill lane"
    assert library.find(str(folder)).name == "mill lane"
    for path, name, reason in (
        (folder, "other", "remove it to give it another name"),
        (folder / "garden", "", "overlaps"),
        (tmp_path / "missing", "", "there is no folder"),
    ):
        with pytest.raises((ValueError, OSError), match=reason):
            library.add(path, name)
    (tmp_path / "notes.txt").write_text("A note.")
    with pytest.raises(ValueError, match="choose another name"):
        library.add(tmp_path / "notes.txt", "mill lane")
    with pytest.raises(ValueError, match="it has mill lane"):
        library.find("nothing")
    assert library.add(tmp_path / "notes.txt") == "notes"
    assert update(library, "notes").added == ["notes.txt"]
    (tmp_path / "photo.jpg").write_bytes(b"jpg")
    library.add(tmp_path / "photo.jpg")
    with pytest.raises(OSError, match="of a kind that is not read"):
        update(library, "photo")


def test_a_name_is_looked_for_before_a_path(
    library: Library, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    library.add(other, "house")
    library.add(folder, "a")
    monkeypatch.chdir(tmp_path)
    assert library.find("house").path == other
    assert library.find("./house").path == folder


@pytest.mark.skipif(sys.platform == "darwin", reason="needs names that are no UTF-8")
def test_a_name_that_is_no_text_is_an_error_of_that_file_alone(library: Library, folder: Path) -> None:
    (folder / os.fsdecode(b"caf\xe9.txt")).write_text("Coffee.")
    library.add(folder)
    found = update(library)
    assert found.errors == [("caf\\udce9.txt", "its name is not in UTF-8: rename it")]
    assert found.added == ["garden/garden.txt", "house.md"]


def test_a_file_of_a_full_library_may_change(library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library.add(folder)
    update(library)
    monkeypatch.setattr(module, "_MAX_PASSAGES", len(texts(library)))
    (folder / "garden" / "garden.txt").write_text("Water the beans.")
    assert update(library).changed == ["garden/garden.txt"]


def test_a_full_library_refuses_a_file(library: Library, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_PASSAGES", 2)
    library.add(folder)
    assert [path for path, reason in update(library).errors if "full" in reason] == ["house.md"]
