"""Small values that the replicas of a service share, each for a limited time: in an SQLite file on one machine, or on a
server that speaks the Redis protocol (Redis, Valkey, KeyDB, Dragonfly), which needs the `cluster` extra."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from agent.storage import forget_deleted, open_database

T = TypeVar("T")

_log = logging.getLogger("rejoinder.server")

_PURGE_INTERVAL_S = 10.0

_SCHEMA = """
create table if not exists records (
    key text primary key,
    value blob not null,
    expires_at real not null
) without rowid;
create index if not exists records_expires_at on records (expires_at);
"""

_PREFIX = "rejoinder:"
"""Of all keys on a Redis server, so that it may serve others as well."""

_TIMEOUT_S = 2.0
"""How long a Redis server may take to answer."""

_PUT_SCRIPT = """
if redis.call('get', KEYS[1]) == '' then return 0 end
redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""

_CLAIM_SCRIPT = """
if redis.call('get', KEYS[1]) == '' then return 0 end
redis.call('set', KEYS[1], '', 'PX', ARGV[1])
return 1
"""

_TAKE_SCRIPT = """
local value = redis.call('get', KEYS[1])
if not value or value == '' then return false end
redis.call('set', KEYS[1], '', 'PX', ARGV[1])
return value
"""


class StoreUnavailable(OSError):
    """The store cannot be reached now."""


class RecordStore(Protocol):
    """Values by key. Methods take milliseconds, and may be called from any thread. All raise StoreUnavailable.

    An empty value stands where one was taken, so that its earlier owner learns of it, and does not write it again.
    """

    def put(self, key: str, value: bytes, seconds: float) -> bool:
        """Store a value, not empty, for so long. Returns False if the earlier one was taken: then nothing is stored."""

    def get(self, key: str) -> bytes | None:
        """The value; None if there is none, or if it was taken."""

    def take(self, key: str, seconds: float) -> bytes | None:
        """Like `get`, but of several callers only one gets the value. For so long it counts as taken."""

    def claim(self, key: str, seconds: float) -> bool:
        """Like `take`, for its owner, who needs no value and may have stored none. Returns False if it was taken."""

    def delete(self, *keys: str) -> None:
        """Forget values, or that they were taken."""

    def scan(self, prefix: str) -> dict[str, bytes]:
        """The values whose keys begin like this."""

    def close(self) -> None:
        """Close the connection."""


class SharedRecords:
    """A store as conversations use it: on the event loop, and they go on without it.

    Args:
        store: None for none.
    """

    def __init__(self, store: RecordStore | None = None) -> None:
        self._store, self._error_logged = store, False

    @property
    def exist(self) -> bool:
        """Whether there are other replicas to share with."""
        return self._store is not None

    async def call(self, work: Callable[[RecordStore], T]) -> T | None:
        """Use the store in a thread. Returns None without a store, and while it cannot be used."""
        if self._store is None:
            return None
        try:
            done = await asyncio.to_thread(work, self._store)
        except StoreUnavailable as error:
            if not self._error_logged:
                _log.error(
                    "%s; until they are back, a conversation whose replica dies is lost, and limits of keys count the "
                    "conversations of one replica",
                    error,
                )
            self._error_logged = True
            return None
        self._error_logged = False
        return done

    def close(self) -> None:
        """Close the store."""
        if self._store is not None:
            self._store.close()


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
        self._purge()  # of what expired while nobody had the file open

    def put(self, key: str, value: bytes, seconds: float) -> bool:
        now = self._clock()
        statement = (
            "insert into records values (?1, ?2, ?3) on conflict (key) do update set value = ?2, expires_at = ?3 "
            "where value != x'' or expires_at <= ?4"
        )
        changed = self._execute(statement, key, value, now + seconds, now)[1]
        if now > self._purged_at + _PURGE_INTERVAL_S:
            self._purged_at = now
            self._purge()
        return changed > 0

    def get(self, key: str) -> bytes | None:
        statement = "select value from records where key = ? and value != x'' and expires_at > ?"
        rows, _ = self._execute(statement, key, self._clock())
        return bytes(rows[0][0]) if rows else None

    def take(self, key: str, seconds: float) -> bytes | None:
        with self._transaction() as file:
            file.execute("begin immediate")
            now = self._clock()
            # `returning` gives the new value, so the old one is read in the same transaction.
            query = "select value from records where key = ? and value != x'' and expires_at > ?"
            rows = file.execute(query, (key, now)).fetchall()
            if rows:
                file.execute("update records set value = x'', expires_at = ? where key = ?", (now + seconds, key))
        return bytes(rows[0][0]) if rows else None

    def claim(self, key: str, seconds: float) -> bool:
        now = self._clock()
        statement = (
            "insert into records values (?1, x'', ?2) on conflict (key) do update set value = x'', expires_at = ?2 "
            "where value != x'' or expires_at <= ?3"
        )
        return self._execute(statement, key, now + seconds, now)[1] > 0

    def delete(self, *keys: str) -> None:
        with self._transaction() as file:
            file.executemany("delete from records where key = ?", [(key,) for key in keys])
        with self._transaction() as file:
            forget_deleted(file)

    def scan(self, prefix: str) -> dict[str, bytes]:
        statement = "select key, value from records where substr(key, 1, ?) = ? and value != x'' and expires_at > ?"
        rows, _ = self._execute(statement, len(prefix), prefix, self._clock())
        return {key: bytes(value) for key, value in rows}

    def close(self) -> None:
        with closing(self._file):  # even if another process writes for too long, which fails the purge
            self._purge()

    def _purge(self) -> None:
        self._execute("delete from records where expires_at <= ?", self._clock())
        with self._transaction() as file:
            forget_deleted(file)

    def _execute(self, statement: str, *values: str | bytes | float) -> tuple[list[tuple[Any, ...]], int]:
        """The rows, and how many rows were changed."""
        with self._transaction() as file, closing(file.execute(statement, values)) as rows:
            return rows.fetchall(), rows.rowcount

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                with self._file:
                    yield self._file
            except sqlite3.Error as error:
                raise StoreUnavailable(f"the shared records cannot be used ({error})") from None


class RedisStore:
    """A `RecordStore` on a server that speaks the Redis protocol.

    Args:
        url: `redis://`, `rediss://` (TLS) or `unix://`.

    Raises:
        OSError: the server cannot be reached.
        ValueError: the client is not installed, or the URL is wrong.
    """

    def __init__(self, url: str) -> None:
        try:
            import redis
        except ImportError:
            message = 'records on a Redis server need another package: pip install -e ".[cluster]"'
            raise ValueError(message) from None
        self._errors = redis.RedisError
        self._client: Any = redis.Redis.from_url(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S)
        scripts = _PUT_SCRIPT, _TAKE_SCRIPT, _CLAIM_SCRIPT
        self._put, self._take, self._claim = map(self._client.register_script, scripts)
        try:
            self._client.ping()
        except self._errors as error:
            self._client.close()
            raise OSError(f"the server of the shared records cannot be used ({error}): check --records") from None

    def put(self, key: str, value: bytes, seconds: float) -> bool:
        return bool(self._call(self._put, keys=[_PREFIX + key], args=[value, _milliseconds(seconds)]))

    def get(self, key: str) -> bytes | None:
        return self._call(self._client.get, _PREFIX + key) or None

    def take(self, key: str, seconds: float) -> bytes | None:
        return self._call(self._take, keys=[_PREFIX + key], args=[_milliseconds(seconds)]) or None

    def claim(self, key: str, seconds: float) -> bool:
        return bool(self._call(self._claim, keys=[_PREFIX + key], args=[_milliseconds(seconds)]))

    def delete(self, *keys: str) -> None:
        if keys:
            self._call(self._client.delete, *(_PREFIX + key for key in keys))

    def scan(self, prefix: str) -> dict[str, bytes]:
        keys = [bytes(key) for key in self._call(lambda: list(self._client.scan_iter(f"{_PREFIX}{prefix}*", 1000)))]
        values = self._call(self._client.mget, keys) if keys else []
        return {key.decode().removeprefix(_PREFIX): value for key, value in zip(keys, values, strict=True) if value}

    def close(self) -> None:
        self._client.close()

    def _call(self, function: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except self._errors as error:
            raise StoreUnavailable(f"the server of the shared records does not answer ({error})") from None


def _milliseconds(seconds: float) -> int:
    return max(1, int(1000 * seconds))


def open_store(location: str) -> RecordStore:
    """A store by its location: a path, or a URL like `redis://:PASSWORD@HOST:6379/0`.

    Raises:
        OSError: it cannot be used.
        ValueError: the client for it is not installed, or the URL is wrong.
    """
    path = records_path(location)
    return RedisStore(location) if path is None else SQLiteStore(path)


def records_path(location: str) -> Path | None:
    """The file of a store by its location; None if it is a server."""
    return None if "://" in location else Path(location)


def delete_records(
    store: RecordStore, *, key: str | None = None, caller: str | None = None, token: str | None = None
) -> int:
    """Delete the records of an API key, of a phone number, or of a client's own token, whichever version wrote them.
    Returns how many. Raises StoreUnavailable."""
    # A session's configuration has the token, as that of an MCP server.
    quoted = None if token is None else json.dumps(token, ensure_ascii=False).encode()
    found = list[str]()
    for name, value in store.scan("").items():
        if quoted is not None and quoted in value:
            found.append(name)
        elif (key, caller) != (None, None):
            of_key, of_caller = _owners(value)
            if of_key == key if key is not None else of_caller == caller:
                found.append(name)
    store.delete(*found)
    return len(found)


def _owners(value: bytes) -> tuple[Any, Any]:
    """The API key's name and the phone number in a record; None where there is none. Other versions' records have more
    fields, or lack some."""
    try:
        record = json.loads(value)
    except ValueError:
        return None, None
    if not isinstance(record, dict):
        return None, None
    key = record.get("key")
    return key.get("name") if isinstance(key, dict) else key, record.get("caller")
