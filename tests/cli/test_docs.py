"""`rejoinder docs`, with the real embedding model."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from agent.documents.confined_reader import ConfinedReader
from agent.documents.library import DOCUMENTS_FILE
from agent.documents.readers import Document, parse
from cli.main import app as cli
from tests.agent.documents.sample_documents import HOUSE


@pytest.fixture(autouse=True)
def niceness(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """By how much the priority was lowered. These tests keep theirs."""
    lowered = list[int]()
    monkeypatch.setattr(os, "nice", lowered.append)
    return lowered


def docs(data: Path, *arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(
        cli, ["docs", *arguments, "--data", str(data)], env={"COLUMNS": "400", "NO_COLOR": "1", "TERM": "dumb"}
    )
    return done.exit_code, " ".join(done.output.split())


def test_a_folder_is_added_searched_updated_listed_and_removed(tmp_path: Path, niceness: list[int]) -> None:
    data, folder = tmp_path / "data", tmp_path / "house"
    folder.mkdir()
    (folder / "house.md").write_text(HOUSE)
    (folder / "broken.pdf").write_bytes(b"%PDF")
    code, output = docs(data, "add", str(folder))
    assert code == 0 and "house: 1 added. It has 1 files with 3 passages." in output
    assert niceness == [10]
    assert "house: broken.pdf was not read: it is damaged" in output
    code, output = docs(data, "search", "Which lever starts the heating?")
    assert code == 0
    assert re.search(r"\d+% The House on Mill Lane \(house.md, Heating, Boiler\) Turn the red handle", output)
    (folder / "broken.pdf").unlink()
    (folder / "notes.txt").write_text("The bicycle is green.")
    assert "house: 1 added, 1 unchanged" in docs(data, "update")[1]
    code, output = docs(data, "list")
    assert code == 0 and str(folder) in output and "was not read" not in output
    assert "Forgot house: 2 files, 4 passages." in docs(data, "remove", "house")[1]
    assert "There are no documents" in docs(data, "list")[1]


def kept(data: Path) -> bytes:
    """What the files of a folder hold. The text index has the stems of words, without what they share with the word
    before."""
    return b"".join(file.read_bytes() for file in data.iterdir())


def test_an_interrupted_update_leaves_nothing_of_what_it_has_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, folder = tmp_path / "data", tmp_path / "house"
    folder.mkdir()
    (folder / "a.md").write_text("The combination is xylophone.")
    (folder / "b.md").write_text("The bicycle is green.")
    assert docs(data, "add", str(folder))[0] == 0
    assert b"ylophon" in kept(data)
    (folder / "a.md").write_text("The combination has changed.")
    (folder / "b.md").write_text("The bicycle is red.")

    def interrupted(reader: ConfinedReader, path: Path, data: bytes) -> Document:
        if path.name == "b.md":
            raise KeyboardInterrupt
        return parse(path, data)

    monkeypatch.setattr(ConfinedReader, "read", interrupted)
    assert docs(data, "update")[0] != 0
    assert b"has changed" in kept(data) and b"ylophon" not in kept(data)


def test_text_that_another_process_keeps_is_not_said_to_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.storage._BUSY_TIMEOUT_S", 0.05)
    data, folder, other = tmp_path / "data", tmp_path / "house", tmp_path / "garden"
    for each, text in ((folder, "The combination is xylophone."), (other, "Water the tomatoes.")):
        each.mkdir()
        (each / "a.md").write_text(text)
    assert docs(data, "add", str(folder))[0] == 0
    with closing(sqlite3.connect(data / DOCUMENTS_FILE, isolation_level=None)) as reader:
        reader.execute("begin").execute("select * from files").fetchall()
        assert docs(data, "add", str(other))[0] == 0  # nothing was removed
        code, output = docs(data, "remove", "house")
        assert code == 1 and "still holds what was deleted, as another process reads it" in output
        assert "run `rejoinder docs list` later" in output and b"ylophon" in kept(data)
        assert docs(data, "list")[0] == 1
    assert docs(data, "list")[0] == 0
    assert b"ylophon" not in kept(data) and b"tomatoes" in kept(data)


def test_mistakes_are_reported_in_one_sentence(tmp_path: Path) -> None:
    for arguments, reason in (
        (("add", str(tmp_path / "missing")), "there is no folder"),
        (("remove", "house"), "the library has no documents named 'house'"),
        (("update",), "there are no documents"),
        (("search", "What?", "--docs", "house"), "run `rejoinder docs add FOLDER`"),
    ):
        code, output = docs(tmp_path / "data", *arguments)
        assert code == 1 and reason in output, output
