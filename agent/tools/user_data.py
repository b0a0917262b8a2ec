"""What people ask the assistant to keep: timers, reminders, notes and how names are said, in an SQLite file that
survives a restart."""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
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


def _log_failure(written: Future[Any]) -> None:
    error = None if written.cancelled() else written.exception()
    if isinstance(error, sqlite3.Error):  # others are for those who asked for it
        _log.error("user data cannot be written: %s", error)


class UserData:
    """The file. Methods may be called on any thread. Those that read take microseconds to a few milliseconds. Those
    that write wait up to 5 s for another process that writes, so the event loop leaves them to `in_background`.

    Args:
        writer: what `in_background` uses; a thread of its own if None.

    Raises:
        OSError: the file cannot be used.
    """

    def __init__(self, path: Path, writer: Executor | None = None) -> None:
        self._lock, self._file = threading.Lock(), open_database(path, _SCHEMA)
        self._read_lock, self._reader = threading.Lock(), open_database(path, "")  # a reader waits for no writer
        self._writer = writer or ThreadPoolExecutor(1, thread_name_prefix="user-data")
        self._file.isolation_level = None
        if "repeat" not in {row[1] for row in self._file.execute("pragma table_info(alarms)")}:
            self._file.execute("alter table alarms add column repeat text not null default ''")
        self._in_use = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
        self._forget_what_nobody_can_name()

    def _forget_what_nobody_can_name(self) -> None:
        """Forget the notes of conversations whose process was killed, unless another one that lives has the file: it
        may have some of its own."""
        try:
            fcntl.flock(self._in_use, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass
        else:
            self._forget("substr(owner, 1, length(?1) + 1) = ?1 || ':'", ANONYMOUS)
        fcntl.flock(self._in_use, fcntl.LOCK_SH)  # until this process ends, however it does

    def close(self) -> None:
        """Write what is left, and close the file."""
        self._writer.shutdown()
        with self._lock, self._read_lock:
            self._file.close()
            self._reader.close()
        os.close(self._in_use)

    def in_background(self, write: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Future[T]:
        """Call a method of this that writes, after those that were called before."""
        written = self._writer.submit(write, *arguments, **named)
        written.add_done_callback(_log_failure)
        return written

    def add_alarm(self, owner: str, kind: str, text: str, set_at: float, due_at: float, repeat: str = "") -> None:
        """Keep a timer, an alarm or a reminder. Raises ValueError if the owner has as many entries as are allowed."""
        row = (owner, kind, text[:MAX_CHARACTERS], set_at, due_at, repeat)
        with self._lock:
            self._check_room("alarms", owner)
            query = "insert into alarms (owner, kind, text, set_at, due_at, repeat) values (?, ?, ?, ?, ?, ?)"
            self._file.execute(query, row)

    def alarms(self, owner: str) -> list[Alarm]:
        """An owner's timers and reminders, the next one first."""
        query = "select id, kind, text, set_at, due_at, repeat from alarms where owner = ? order by due_at"
        with self._read_lock:
            return [Alarm(*row) for row in self._reader.execute(query, (owner,))]

    def postpone_alarm(self, number: int, due_at: float) -> None:
        """It is due again at another time."""
        with self._lock:
            self._file.execute("update alarms set due_at = ? where id = ?", (due_at, number))

    def remove_alarm(self, number: int) -> None:
        """Forget a timer or a reminder."""
        with self._lock:
            self._file.execute("delete from alarms where id = ?", (number,))
            forget_deleted(self._file)

    def add_note(self, owner: str, text: str, written_at: float) -> None:
        """Keep a note. Raises ValueError if the owner has as many entries as are allowed."""
        with self._lock:
            self._check_room("notes", owner)
            query = "insert into notes (owner, text, written_at) values (?, ?, ?)"
            self._file.execute(query, (owner, text[:MAX_CHARACTERS], written_at))

    def notes(self, owner: str) -> list[str]:
        """An owner's notes, the oldest first."""
        query = "select text from notes where owner = ? order by id"
        with self._read_lock:
            return [text for (text,) in self._reader.execute(query, (owner,))]

    def remove_notes(self, owner: str) -> int:
        """Forget an owner's notes, and how words are said. Returns how many notes there were."""
        with self._lock:
            removed = self._file.execute("delete from notes where owner = ?", (owner,)).rowcount
            self._file.execute("delete from pronunciations where owner = ?", (owner,))
            forget_deleted(self._file)
            return removed

    def add_pronunciations(self, owner: str, said: Mapping[str, str]) -> None:
        """Keep how words are said. If there are too many, those that were taught first are forgotten."""
        oldest = "select rowid from pronunciations where owner = ?1 order by rowid desc limit -1 offset ?2"
        with self._lock:
            for word, how in said.items():
                self._file.execute("insert or replace into pronunciations values (?, ?, ?)", (owner, word, how))
            query = f"delete from pronunciations where rowid in ({oldest})"  # nosec B608  # it is of this file
            self._file.execute(query, (owner, MAX_ENTRIES))
            forget_deleted(self._file)

    def pronunciations(self, owner: str) -> dict[str, str]:
        """How an owner wants words to be said, the one taught last at the end."""
        query = "select word, said from pronunciations where owner = ? order by rowid"
        with self._read_lock:
            return dict(self._reader.execute(query, (owner,)))

    def forget(self, owner: str) -> None:
        """Forget everything of an owner, and of that caller's calls with API keys, whose owner is `OWNER@KEY`."""
        self._forget("owner = ?1 or substr(owner, 1, length(?1) + 1) = ?1 || '@'", owner)

    def forget_callers(self, key: str) -> None:
        """Forget everything of the callers that an API key has brought (`OWNER@KEY`)."""
        self._forget("substr(owner, -length(?1) - 1) = '@' || ?1", key)

    def _forget(self, condition: str, name: str) -> None:
        """Forget what fulfils a condition on a name."""
        with self._lock:
            for table in ("alarms", "notes", "pronunciations"):
                query = f"delete from {table} where {condition}"  # nosec B608  # both are of this file
                self._file.execute(query, (name,))
            forget_deleted(self._file)

    def _check_room(self, table: str, owner: str) -> None:
        query = f"select count(*) from {table} where owner = ?"  # nosec B608  # a table of this file
        (count,) = self._file.execute(query, (owner,)).fetchone()
        if count >= MAX_ENTRIES:
            raise ValueError(f"There are {count} already, and no more fit: remove some first.")
