"""What people ask the assistant to keep: timers, reminders, notes and how names are said, in an SQLite file that
survives a restart."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from agent.storage import forget_deleted, open_database

_log = logging.getLogger("rejoinder.agent")

P = ParamSpec("P")
T = TypeVar("T")

MAX_ENTRIES = 200
"""Timers and reminders, notes, or words that are said in a certain way, of one owner."""

MAX_CHARACTERS = 1000
"""Length of a note or of a reminder's text."""

_SCHEMA = """
create table if not exists alarms (
    id integer primary key, owner text not null, kind text not null, text text not null, set_at real not null,
    due_at real not null, repeat text not null default ''
);
create index if not exists alarms_owner on alarms (owner, due_at);
create table if not exists notes (
    id integer primary key, owner text not null, text text not null, written_at real not null
);
create index if not exists notes_owner on notes (owner);
create table if not exists pronunciations (
    owner text not null, word text not null, said text not null, primary key (owner, word)
);
"""


@dataclass(frozen=True)
class Alarm:
    """A timer, an alarm or a reminder. `text` is the timer's name or what to remind of. Times are Unix times in
    seconds. `repeat` says when it is due again, as `recurrence.py` describes; empty for once."""

    id: int
    kind: str
    text: str
    set_at: float
    due_at: float
    repeat: str = ""


def owner_id(kind: str, secret: str) -> str:
    """Names the owner of data without keeping the secret that identifies them."""
    return f"{kind}:{hashlib.sha256(secret.encode()).hexdigest()[:32]}"


ANONYMOUS = "conversation"
"""The kind of owner whose data belong to one conversation only, and are forgotten with it."""

USER_DATA_FILE = "user_data.sqlite"
"""Its name in the data folder."""


def _is_anonymous(owner: str) -> bool:
    return owner.startswith(f"{ANONYMOUS}:")


def _log_failure(written: Future[Any]) -> None:
    error = None if written.cancelled() else written.exception()
    if isinstance(error, sqlite3.Error):  # others are for those who asked for it
        _log.error("user data cannot be written: %s", error)


class _Connection:
    """A connection that one thread uses at a time."""

    def __init__(self, file: sqlite3.Connection) -> None:
        self._file, self._lock = file, threading.Lock()

    @contextmanager
    def use(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            yield self._file


class UserData:
    """The file. What belongs to an `ANONYMOUS` owner stays in memory and is never written.

    Methods may be called on any thread. Those that read take microseconds to a few milliseconds. Those that write wait
    up to 5 s for another process that writes, so the event loop leaves them to `in_background`.

    Args:
        writer: what `in_background` uses; a thread of its own if None.

    Raises:
        OSError: the file cannot be used.
    """

    def __init__(self, path: Path, writer: Executor | None = None) -> None:
        file, memory = open_database(path, _SCHEMA), sqlite3.connect(":memory:", check_same_thread=False)
        memory.executescript(_SCHEMA)
        file.isolation_level = memory.isolation_level = None
        if "repeat" not in {row[1] for row in file.execute("pragma table_info(alarms)")}:
            file.execute("alter table alarms add column repeat text not null default ''")
        self._file, self._memory = _Connection(file), _Connection(memory)
        self._reader = _Connection(open_database(path, ""))  # a reader waits for no writer
        self._writer = writer or ThreadPoolExecutor(1, thread_name_prefix="user-data")

    def _write(self, owner: str) -> AbstractContextManager[sqlite3.Connection]:
        return self._memory.use() if _is_anonymous(owner) else self._file.use()

    def _read(self, owner: str) -> AbstractContextManager[sqlite3.Connection]:
        return self._memory.use() if _is_anonymous(owner) else self._reader.use()

    def close(self) -> None:
        """Write what is left, and close the file."""
        self._writer.shutdown()
        for connection in (self._file, self._reader, self._memory):
            with connection.use() as file:
                file.close()

    def in_background(self, write: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Call a method of this that writes, after those that were called before."""
        written = self._writer.submit(write, *arguments, **named)
        written.add_done_callback(_log_failure)
        return written

    def add_alarm(self, owner: str, kind: str, text: str, set_at: float, due_at: float, repeat: str = "") -> None:
        """Keep a timer, an alarm or a reminder. Raises ValueError if the owner has as many entries as are allowed."""
        row = (owner, kind, text[:MAX_CHARACTERS], set_at, due_at, repeat)
        with self._write(owner) as file:
            _check_room(file, "alarms", owner)
            query = "insert into alarms (owner, kind, text, set_at, due_at, repeat) values (?, ?, ?, ?, ?, ?)"
            file.execute(query, row)

    def alarms(self, owner: str) -> list[Alarm]:
        """An owner's timers and reminders, the next one first."""
        query = "select id, kind, text, set_at, due_at, repeat from alarms where owner = ? order by due_at"
        with self._read(owner) as file:
            return [Alarm(*row) for row in file.execute(query, (owner,))]

    def postpone_alarm(self, owner: str, number: int, due_at: float) -> None:
        """It is due again at another time."""
        with self._write(owner) as file:
            file.execute("update alarms set due_at = ? where id = ? and owner = ?", (due_at, number, owner))

    def remove_alarm(self, owner: str, number: int) -> None:
        """Forget a timer or a reminder."""
        with self._write(owner) as file:
            file.execute("delete from alarms where id = ? and owner = ?", (number, owner))
            forget_deleted(file)

    def add_note(self, owner: str, text: str, written_at: float) -> None:
        """Keep a note. Raises ValueError if the owner has as many entries as are allowed."""
        with self._write(owner) as file:
            _check_room(file, "notes", owner)
            query = "insert into notes (owner, text, written_at) values (?, ?, ?)"
            file.execute(query, (owner, text[:MAX_CHARACTERS], written_at))

    def notes(self, owner: str) -> list[str]:
        """An owner's notes, the oldest first."""
        query = "select text from notes where owner = ? order by id"
        with self._read(owner) as file:
            return [text for (text,) in file.execute(query, (owner,))]

    def remove_notes(self, owner: str) -> int:
        """Forget an owner's notes, and how words are said. Returns how many notes there were."""
        with self._write(owner) as file:
            removed = file.execute("delete from notes where owner = ?", (owner,)).rowcount
            file.execute("delete from pronunciations where owner = ?", (owner,))
            forget_deleted(file)
            return removed

    def add_pronunciations(self, owner: str, said: Mapping[str, str]) -> None:
        """Keep how words are said. If there are too many, those that were taught first are forgotten."""
        oldest = "select rowid from pronunciations where owner = ?1 order by rowid desc limit -1 offset ?2"
        with self._write(owner) as file:
            for word, how in said.items():
                file.execute("insert or replace into pronunciations values (?, ?, ?)", (owner, word, how))
            query = f"delete from pronunciations where rowid in ({oldest})"  # nosec B608  # it is of this file
            file.execute(query, (owner, MAX_ENTRIES))
            forget_deleted(file)

    def pronunciations(self, owner: str) -> dict[str, str]:
        """How an owner wants words to be said, the one taught last at the end."""
        query = "select word, said from pronunciations where owner = ? order by rowid"
        with self._read(owner) as file:
            return dict(file.execute(query, (owner,)))

    def forget(self, owner: str) -> int:
        """Forget everything of an owner, and of that caller's calls with API keys, whose owner is `OWNER@KEY`. Returns
        how many timers, notes and so on these were."""
        return self._forget(self._write(owner), "owner = ?1 or substr(owner, 1, length(?1) + 1) = ?1 || '@'", owner)

    def forget_callers(self, key: str) -> int:
        """Forget everything of the callers that an API key has brought (`OWNER@KEY`). Returns how much it was."""
        return self._forget(self._file.use(), "substr(owner, -length(?1) - 1) = '@' || ?1", key)

    @staticmethod
    def _forget(store: AbstractContextManager[sqlite3.Connection], condition: str, name: str) -> int:
        """Forget what fulfils a condition on a name. Returns how much it was."""
        forgotten = 0
        with store as file:
            for table in ("alarms", "notes", "pronunciations"):
                query = f"delete from {table} where {condition}"  # nosec B608  # both are of this file
                forgotten += file.execute(query, (name,)).rowcount
            forget_deleted(file)
        return forgotten


def _check_room(file: sqlite3.Connection, table: str, owner: str) -> None:
    query = f"select count(*) from {table} where owner = ?"  # nosec B608  # a table of this file
    (count,) = file.execute(query, (owner,)).fetchone()
    if count >= MAX_ENTRIES:
        raise ValueError(f"There are {count} already, and no more fit: remove some first.")
