"""`rejoinder docs`, with the real embedding model."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

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


def test_mistakes_are_reported_in_one_sentence(tmp_path: Path) -> None:
    for arguments, reason in (
        (("add", str(tmp_path / "missing")), "there is no folder"),
        (("remove", "house"), "the library has no documents named 'house'"),
        (("update",), "there are no documents"),
        (("search", "What?", "--docs", "house"), "run `rejoinder docs add FOLDER`"),
    ):
        code, output = docs(tmp_path / "data", *arguments)
        assert code == 1 and reason in output, output
