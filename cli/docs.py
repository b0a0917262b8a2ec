"""`rejoinder docs`: the library of documents that the assistant answers from."""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from agent.documents.embedding import EMBEDDING_MODEL, Embedder
from agent.documents.grounding import fit, location
from agent.documents.index import DocumentIndex
from agent.documents.library import DOCUMENTS_FILE, Library, Update
from agent.storage import data_folder
from cli.console import UserError, say, stderr, stdout, user_errors
from cli.options import DataOption
from server.serving.runtime import locate_model

app = typer.Typer(no_args_is_help=True, add_completion=False)

_EMPTY = "there are no documents: `rejoinder docs add FOLDER` reads some"

_NICENESS = 10
"""How far documents that are read stand back behind a server on the same machine, in which people speak."""

NameArgument = Annotated[str, typer.Argument(help="A name from `rejoinder docs list`, or the folder.")]


@contextmanager
def _library(data: Path | None) -> Iterator[Library]:
    with user_errors(), closing(Library((data or data_folder()) / DOCUMENTS_FILE)) as library:
        try:
            yield library
        finally:  # also of what an update that was interrupted has removed
            library.erase_removed()


@app.command("add")
def add(
    folder: Annotated[Path, typer.Argument(help="A folder with all that is below it, or a single file.")],
    name: Annotated[str, typer.Option(help="What to call it; by default the folder's name.")] = "",
    data: DataOption = None,
) -> None:
    """Read a folder of documents; run it again to read what has changed. A running server answers from it at once."""
    with _library(data) as library:
        _update(library, [library.add(folder, name)])


@app.command("update")
def update(
    names: Annotated[list[str] | None, typer.Argument(help="Names or folders; all if none is given.")] = None,
    data: DataOption = None,
) -> None:
    """Read what has changed in the folders of the library."""
    with _library(data) as library:
        _update(library, names or [folder.name for folder in library.folders()])


@app.command("list")
def list_folders(data: DataOption = None) -> None:
    """Show the folders of the library, and the files that could not be read."""
    with _library(data) as library:
        folders = library.folders()
        table = Table("name", "files", "passages", "updated", "folder", box=None)
        for folder in folders:
            updated = datetime.datetime.fromtimestamp(folder.updated_at).strftime("%Y-%m-%d %H:%M")
            table.add_row(folder.name, str(folder.files), str(folder.passages), updated, str(folder.path))
        stdout.print(table if folders else "There are no documents: `rejoinder docs add FOLDER` reads some.")
        for folder in folders:
            _print_errors(folder.name, list(folder.errors))


@app.command("remove")
def remove(name: NameArgument, data: DataOption = None) -> None:
    """Forget a folder. Its files stay where they are."""
    with _library(data) as library:
        folder = library.remove(name)
        say(f"Forgot {folder.name}: {folder.files} files, {folder.passages} passages.")


@app.command("search")
def search(
    question: Annotated[str, typer.Argument(help="What the user would ask.")],
    docs: Annotated[list[str] | None, typer.Option("--docs", help="Names or folders; all if none is given.")] = None,
    data: DataOption = None,
) -> None:
    """Show the passages that a question finds, and how likely each answers it."""
    with _library(data) as library:
        names = [library.find(name).name for name in docs] if docs else [one.name for one in library.folders()]
        if not names:
            raise UserError(_EMPTY)
        matches = DocumentIndex(library, names, _embedder()).search(question)
        for match in matches:
            found = match.found
            say(f"{fit(match):4.0%}  {found.title} ({location(found)})", "bold")
            say(f"      {found.passage.text}")
        if not matches:
            say("Nothing was found.")


def _embedder() -> Embedder:
    return Embedder(locate_model(EMBEDDING_MODEL, stderr))


def _update(library: Library, names: list[str]) -> None:
    if not names:
        raise UserError(_EMPTY)
    os.nice(_NICENESS)
    embedder = _embedder()
    for name in names:
        with stderr.status(f"Reading {name}…") as status:
            changes = library.update(
                name,
                embedder,
                embedder.name,
                lambda path, number, count: status.update(f"Reading {number + 1} of {count}: {path}"),
            )
        folder = library.find(name)
        say(f"{folder.name}: {_summary(changes)}. It has {folder.files} files with {folder.passages} passages.")
        _print_errors(folder.name, changes.errors)


def _summary(changes: Update) -> str:
    counts = {
        "added": len(changes.added),
        "changed": len(changes.changed),
        "removed": len(changes.removed),
        "unchanged": changes.unchanged,
        "of other kinds left out": changes.ignored,
    }
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count) or "nothing to read"


def _print_errors(name: str, errors: list[tuple[str, str]]) -> None:
    for path, reason in errors:
        stderr.print(f"{name}: {path} was not read: {reason}", style="yellow", markup=False, highlight=False)
