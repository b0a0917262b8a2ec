"""Small values that the replicas of a service share, each for a limited time: in an SQLite file on one machine, or on a
server that speaks the Redis protocol (`redis_store.py`)."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

from agent.storage import open_database

TAKEN = b""
"""Stands where a value was taken, so that its earlier owner learns of it, and does not write it again."""

_PURGE_INTERVAL_S = 10.0

_SCHEMA = """
pragma secure_delete = on;
create table if not exists records (
    key text primary key,
    value blob not null,
    expires_at real not null
) without rowid;
create index if not exists records_expires_at on records (expires_at);
"""


class StoreUnavailable(Exception):
    """The store cannot be reached now."""


class RecordStore(Protocol):
    """Values by key. Methods take milliseconds, and may be called from any thread. All raise StoreUnavailable."""

    def put(self, key: str, value: bytes, seconds: float) -> bool:
        """Store a value, not empty, for so long. Returns False if the earlier one was taken: then nothing is stored."""

    def get(self, key: str) -> bytes | None:
        """The value; None if there is none, or if it was taken."""

    def take(self, key: str, seconds: float) -> bytes | None:
        """Like `get`, but of several callers only one gets the value. For so long it counts as taken."""

    def delete(self, key: str) -> None:
        """Forget a value, or that it was taken."""

    def scan(self, prefix: str) -> dict[str, bytes]:
        """The values whose keys begin like this."""

    def close(self) -> None:
        """Close the connection."""


class SQLiteStore:
    """A `RecordStore` in a file that the replicas of one machine share. What was written survives `kill -9`.

    Args:
        path: created if missing.
        clock: Unix time in seconds.

    Raises:
        OSError: the file cannot be used.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._file, self._clock, self._lock = open_database(path, _SCHEMA), clock, threading.Lock()
        self._purged_at = clock()

    def put(self, key: str, value: bytes, seconds: float) -> bool:
        """See `RecordStore`."""
        now = self._clock()
        statement = (
            "insert into records values (?1, ?2, ?3) on conflict (key) do update set value = ?2, expires_at = ?3 "
            "where value != x'' or expires_at <= ?4"
        )
        changed = self._execute(statement, key, value, now + seconds, now)[1]
        if now > self._purged_at + _PURGE_INTERVAL_S:
            self._purged_at = now
            self._execute("delete from records where expires_at <= ?", now)
        return changed > 0

    def get(self, key: str) -> bytes | None:
        """See `RecordStore`."""
        statement = "select value from records where key = ? and value != x'' and expires_at > ?"
        rows, _ = self._execute(statement, key, self._clock())
        return bytes(rows[0][0]) if rows else None

    def take(self, key: str, seconds: float) -> bytes | None:
        """See `RecordStore`."""
        with self._lock:
            try:
                # `returning` gives the new value, so the old one is read in the same transaction.
                with self._file:
                    self._file.execute("begin immediate")
                    now = self._clock()
                    condition = "where key = ? and value != x'' and expires_at > ?"
                    with closing(self._file.execute(f"select value from records {condition}", (key, now))) as rows:
                        row = rows.fetchone()
                    statement = f"update records set value = x'', expires_at = ? {condition}"
                    self._file.execute(statement, (now + seconds, key, now))
            except sqlite3.Error as error:
                raise StoreUnavailable(f"the shared records cannot be used ({error})") from None
        return None if row is None else bytes(row[0])

    def delete(self, key: str) -> None:
        """See `RecordStore`."""
        self._execute("delete from records where key = ?", key)

    def scan(self, prefix: str) -> dict[str, bytes]:
        """See `RecordStore`."""
        statement = "select key, value from records where substr(key, 1, ?) = ? and value != x'' and expires_at > ?"
        rows, _ = self._execute(statement, len(prefix), prefix, self._clock())
        return {key: bytes(value) for key, value in rows}

    def close(self) -> None:
        """See `RecordStore`."""
        with self._lock:
            self._file.close()

    def _execute(self, statement: str, *values: str | bytes | float) -> tuple[list[tuple[Any, ...]], int]:
        """The rows, and how many rows were changed."""
        with self._lock:
            try:
                with self._file, closing(self._file.execute(statement, values)) as rows:
                    return rows.fetchall(), rows.rowcount
            except sqlite3.Error as error:
                raise StoreUnavailable(f"the shared records cannot be used ({error})") from None
