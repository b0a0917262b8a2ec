"""The library, an SQLite file: folders of documents, their passages, a full-text index, and vectors.

Python's own sqlite3 can rarely load extensions, so the vectors are plain columns, which `index.py` searches with NumPy.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agent.documents.confined_reader import ConfinedReader
from agent.documents.passages import Passage, divide, searched_texts
from agent.documents.readers import READERS, UnreadableDocument, file_bytes
from agent.storage import erase_deleted, open_database

DOCUMENTS_FILE = "documents.sqlite"
"""Its name in the data folder."""

DIMENSIONS = 384
"""Of the vectors of all-MiniLM-L6-v2."""

Vectors = npt.NDArray[np.float32]

Embed = Callable[[Sequence[str]], Vectors]
"""Texts → [texts, dimensions], of length 1."""

_READER_VERSION = 3
"""Increase it when readers or passages change: files are then read again at the next update."""

_MAX_PASSAGES = 50_000
"""Of a library, each with about four vectors: 300 MB in memory. Searching them takes about 20 ms."""

_MAX_NAMED_PASSAGES = 5_000
"""Whose names are listened for: reading them takes a quarter of a second."""

_SCHEMA = """
create table if not exists folders (
    id integer primary key, name text not null unique, path text not null unique, updated_at real not null default 0
);
create table if not exists files (
    id integer primary key, folder integer not null references folders (id) on delete cascade, path text not null,
    title text not null default '', size integer not null default 0, modified_ns integer not null default 0,
    sha256 text not null default '', version text not null default '', error text not null default '',
    unique (folder, path)
);
create table if not exists passages (
    id integer primary key, file integer not null references files (id) on delete cascade, heading text not null,
    page integer not null, text text not null, vectors blob not null
);
create index if not exists passages_file on passages (file);
create virtual table if not exists passages_text using fts5 (
    heading, text, content = 'passages', content_rowid = 'id', tokenize = 'porter unicode61 remove_diacritics 2'
);
create trigger if not exists passage_added after insert on passages begin
    insert into passages_text (rowid, heading, text) values (new.id, new.heading, new.text);
end;
create trigger if not exists passage_removed after delete on passages begin
    insert into passages_text (passages_text, rowid, heading, text)
    values ('delete', old.id, old.heading, old.text);
end;
create table if not exists unerased (id integer primary key);
create trigger if not exists passage_unerased after delete on passages begin
    insert into unerased values (null);
end;
create trigger if not exists file_unerased after delete on files begin
    insert into unerased values (null);
end;
"""


@dataclass(frozen=True)
class Folder:
    """A folder of the library.

    Attributes:
        path: the folder, or a single file.
        files, passages: how many it has.
        errors: files that could not be read, and why. Of those that were read before, the old passages are kept.
        updated_at: when it was last looked through, a Unix time in seconds.
    """

    name: str
    path: Path
    files: int
    passages: int
    errors: tuple[tuple[str, str], ...]
    updated_at: float


@dataclass
class Update:
    """What looking through a folder has changed, as paths inside it.

    Attributes:
        ignored: files of a kind that is not read.
        errors: files that could not be read, and why.
    """

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unchanged: int = 0
    ignored: int = 0
    errors: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class FoundPassage:
    """A passage with the document that it is from.

    Attributes:
        title: of the document.
        path: of the file, inside its folder.
    """

    id: int
    title: str
    path: str
    passage: Passage


class Library:
    """The file. Its methods may be called on any thread; those that read documents take as long as that takes.

    Args:
        path: the SQLite file, which is created if it is missing.
        dimensions: of a vector.

    Raises:
        OSError: it cannot be used.
    """

    def __init__(self, path: Path, dimensions: int = DIMENSIONS) -> None:
        self._dimensions = dimensions
        self._lock = threading.RLock()
        self._path, self._file = path, open_database(path, _SCHEMA)
        self._file.isolation_level = None
        self._file.execute("pragma foreign_keys = on")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    # Folders.

    def folders(self) -> list[Folder]:
        """All folders, by name."""
        query = "select id, name, path, updated_at from folders order by name"
        with self._lock:
            return [self._folder(*row) for row in self._file.execute(query).fetchall()]

    def find(self, name: str) -> Folder:
        """The folder of this name or path. Raises ValueError if there is none."""
        path = Path(os.path.expanduser(name))  # Path.expanduser fails for unknown users
        folders = self.folders()
        found = [folder for folder in folders if folder.name == name]
        if not found and path.exists():
            found = [folder for folder in folders if folder.path == path.resolve()]
        if found:
            return found[0]
        known = ", ".join(folder.name for folder in folders)
        have = f"it has {known}" if known else "it is empty"
        raise ValueError(f"the library has no documents named {name!r} ({have}): run `rejoinder docs add FOLDER`")

    def add(self, path: Path, name: str = "") -> str:
        """Add a folder, or a single file, that is read at the next `update`. Returns its name, which it keeps if it is
        in the library already.

        Raises:
            OSError: there is no such folder.
            ValueError: the name is taken by another folder, or it lies in another one.
        """
        path = Path(os.path.expanduser(path)).resolve()  # as in `find`
        if not path.exists():
            raise OSError(f"there is no folder {path}: check the path")
        for folder in self.folders():
            if folder.path == path:
                if name not in ("", folder.name):
                    raise ValueError(f"{path} is in the library as {folder.name!r}: remove it to give it another name")
                return folder.name
            if folder.path in path.parents or path in folder.path.parents:
                raise ValueError(f"{path} overlaps {folder.path}, which is in the library as {folder.name!r}")
        name = name or path.stem or "documents"
        if any(folder.name == name for folder in self.folders()):
            raise ValueError(f"there are documents named {name!r} already: choose another name with --name")
        with self._lock:
            self._file.execute("insert into folders (name, path) values (?, ?)", (name, str(path)))
        return name

    def remove(self, name: str) -> Folder:
        """Forget a folder and its passages; the files themselves stay, and `erase_removed` then leaves nothing of its
        text. Raises ValueError if there is none."""
        folder = self.find(name)
        with self._lock:
            self._file.execute("delete from folders where name = ?", (folder.name,))
        return folder

    def erase_removed(self) -> None:
        """Leave nothing in the file of text that was removed since the last time, by another process as well. Takes as
        long as it takes to write the file, or nothing if nothing was removed. Raises OSError while another process
        reads the file."""
        with self._lock:
            (newest,) = self._file.execute("select max(id) from unerased").fetchone()
            if newest is None:
                return
            # The text index keeps removed words until it is written anew.
            self._file.execute("insert into passages_text (passages_text) values ('optimize')")
            erase_deleted(self._path, remedy="run `rejoinder docs list` later, which erases it")
            self._file.execute("delete from unerased where id <= ?", (newest,))

    def update(
        self, name: str, embed: Embed, model: str, report: Callable[[str, int, int], None] = lambda *_: None
    ) -> Update:
        """Look through a folder and read what has changed. Each file is one transaction: if the process is killed, the
        next update goes on. A file that cannot be read loses nothing: what was read of it before is kept. Then
        `erase_removed` leaves nothing of text that is gone.

        Args:
            embed: makes the vectors of passages.
            model: names what `embed` computes; files whose vectors are of another one are read again.
            report: called before each file with its path, its number and how many there are.

        Raises:
            ValueError: there is none of this name.
            OSError: the folder cannot be read; nothing is changed.
        """
        folder = self.find(name)
        files, ignored = _walk(folder.path)
        update = Update(ignored=ignored)
        version = f"{_READER_VERSION} {model}"
        with self._lock:
            (number,) = self._file.execute("select id from folders where name = ?", (folder.name,)).fetchone()
            query = "select path, id, size, modified_ns, sha256, version, error from files where folder = ?"
            known = {row[0]: row[1:] for row in self._file.execute(query, (number,))}
        for path in known.keys() - files.keys():
            with self._lock:
                self._file.execute("delete from files where id = ?", (known[path][0],))
            if known[path][4]:  # it had been read
                update.removed.append(path)
        with ConfinedReader() as reader:
            for count, (path, file) in enumerate(sorted(files.items())):
                report(path, count, len(files))
                self._update_file(number, path, file, known.get(path), version, embed, update, reader)
        with self._lock:
            self._file.execute("update folders set updated_at = ? where id = ?", (time.time(), number))
        update.removed.sort()
        return update

    def _update_file(
        self,
        folder: int,
        path: str,
        file: Path,
        known: tuple[int, int, int, str, str, str] | None,
        version: str,
        embed: Embed,
        update: Update,
        reader: ConfinedReader,
    ) -> None:
        number, size, modified, sha256, read_with, error = known or (None, -1, -1, "", "", "")
        try:
            _check_name(file)
            stat = file.stat()
            if (stat.st_size, stat.st_mtime_ns, version) == (size, modified, read_with) and not error:
                update.unchanged += 1
                return
            data = file_bytes(file)
            digest = hashlib.sha256(data).hexdigest()
            state = (stat.st_size, stat.st_mtime_ns, digest, version, "")
            if number is not None and (digest, version) == (sha256, read_with):
                update.unchanged += 1
                self._set_state(number, state)
                return
            document = reader.read(file, data)
            passages = divide(document)
            self._check_room(len(passages), number)
            texts = [searched_texts(document.title, passage) for passage in passages]
            vectors = embed([text for several in texts for text in several]).astype(np.float16)
            ends = np.cumsum([len(several) for several in texts])[:-1]
        except (UnreadableDocument, OSError) as problem:
            reason = (problem.strerror or str(problem)) if isinstance(problem, OSError) else str(problem)
            query = (
                "insert into files (folder, path, error) values (?, ?, ?) "
                "on conflict (folder, path) do update set error = excluded.error"
            )
            with self._lock:
                self._file.execute(query, (folder, path, reason))
            update.errors.append((path, reason))
            return
        with self._lock, self._file:  # commits, or rolls back
            self._file.execute("begin immediate")
            if number is None:
                row = self._file.execute("insert into files (folder, path) values (?, ?)", (folder, path))
                number = row.lastrowid or 0
            self._file.execute("delete from passages where file = ?", (number,))
            self._file.execute("update files set title = ? where id = ?", (document.title, number))
            self._set_state(number, state)
            self._file.executemany(
                "insert into passages (file, heading, page, text, vectors) values (?, ?, ?, ?, ?)",
                [
                    (number, passage.heading, passage.page, passage.text, several.tobytes())
                    for passage, several in zip(passages, np.split(vectors, ends), strict=True)
                ],
            )
        (update.changed if known is not None else update.added).append(path)

    def _set_state(self, file: int, state: tuple[int, int, str, str, str]) -> None:
        query = "update files set size = ?, modified_ns = ?, sha256 = ?, version = ?, error = ? where id = ?"
        with self._lock:
            self._file.execute(query, (*state, file))

    def _check_room(self, more: int, replaced: int | None) -> None:
        """Raises UnreadableDocument if there is no room for more passages once those of the replaced file are gone."""
        with self._lock:
            (count,) = self._file.execute("select count(*) from passages where file is not ?", (replaced,)).fetchone()
        if count + more > _MAX_PASSAGES:
            raise UnreadableDocument(f"the library is full: it has {count} passages, and the limit is {_MAX_PASSAGES}")

    # What the index reads.

    @property
    def revision(self) -> tuple[int, int]:
        """Changes whenever the file does, by this process or another."""
        with self._lock:
            (others,) = self._file.execute("pragma data_version").fetchone()
            return int(others), self._file.total_changes

    def vectors(self, folders: Iterable[str]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Vectors]:
        """The passages of these folders: their ids [N], where the vectors of each begin [N], and the vectors
        [vectors, dimensions]."""
        rows = self._passages_of(folders, "passages.id, vectors")
        several = [np.frombuffer(vectors, np.float16).reshape(-1, self._dimensions) for _, vectors in rows]
        starts = np.cumsum([0, *(len(vectors) for vectors in several)])[:-1]
        found = np.concatenate(several) if rows else np.zeros((0, self._dimensions))
        return np.array([number for number, _ in rows], np.int64), starts, found.astype(np.float32)

    def texts(self, folders: Iterable[str]) -> Iterator[str]:
        """The titles, headings and words of these folders' first passages."""
        rows = self._passages_of(folders, "title || ' / ' || heading || ' / ' || text", _MAX_NAMED_PASSAGES)
        return (text for (text,) in rows)

    def _passages_of(self, folders: Iterable[str], columns: str, limit: int = -1) -> list[tuple[Any, ...]]:
        """Columns of these folders' passages, in the order of their ids; of all of them unless there is a limit."""
        names = list(folders)
        query = (
            f"select {columns} from passages "  # nosec B608  # columns are of this file, names are bound
            "join files on files.id = file join folders on folders.id = folder "
            f"where name in ({', '.join('?' * len(names))}) order by passages.id limit {limit}"
        )
        with self._lock:
            return self._file.execute(query, names).fetchall()

    def passages(self, ids: Sequence[int]) -> list[FoundPassage]:
        """Passages by their ids, in this order. Those that are gone are left out."""
        query = (
            "select passages.id, title, path, heading, page, text "  # nosec B608  # question marks alone are added
            "from passages join files on files.id = file "
            f"where passages.id in ({', '.join('?' * len(ids))})"
        )
        with self._lock:
            rows = self._file.execute(query, list(ids)).fetchall()
        found = {row[0]: FoundPassage(row[0], row[1], row[2], Passage(row[3], row[4], row[5])) for row in rows}
        return [found[number] for number in ids if number in found]

    def matching(self, word: str) -> list[int]:
        """The ids of the passages that have a word, in any of its forms."""
        quoted = '"' + word.replace('"', '""') + '"'
        with self._lock:
            rows = self._file.execute("select rowid from passages_text where passages_text match ?", (quoted,))
            return [number for (number,) in rows]

    def _folder(self, number: int, name: str, path: str, updated_at: float) -> Folder:
        errors = self._file.execute(
            "select path, error from files where folder = ? and error != '' order by path", (number,)
        ).fetchall()
        files, passages = self._file.execute(
            "select count(distinct files.id), count(passages.id) from files join passages on file = files.id "
            "where folder = ?",
            (number,),
        ).fetchone()
        return Folder(name, Path(path), files, passages, tuple(errors), updated_at)


def _encodable(name: str) -> str:
    """A file's name in which bytes that are no UTF-8 are escaped."""
    return name.encode(errors="backslashreplace").decode()


def _check_name(file: Path) -> None:
    if _encodable(str(file)) != str(file):
        raise UnreadableDocument("its name is not in UTF-8: rename it")


def _walk(root: Path) -> tuple[dict[str, Path], int]:
    """The files below a folder that can be read, by their path inside it, and how many others there are. Hidden ones
    and links are left out. Raises OSError."""
    if root.is_file():
        if root.suffix.lower() not in READERS:
            raise OSError(f"{root} is of a kind that is not read: use {', '.join(READERS)}")
        return {root.name: root}, 0
    if not root.is_dir():
        raise OSError(f"the folder {root} is not there: nothing was changed")

    def fail(error: OSError) -> None:
        raise OSError(f"cannot read the folder {error.filename} ({error.strerror}): nothing was changed")

    files, ignored = dict[str, Path](), 0
    for folder, folders, names in os.walk(root, onerror=fail):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            path = Path(folder) / name
            if name.startswith((".", "~$")) or path.is_symlink():
                continue
            if path.suffix.lower() in READERS:
                files[_encodable(path.relative_to(root).as_posix())] = path
            else:
                ignored += 1
    return files, ignored
