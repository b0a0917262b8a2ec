"""API keys: named, stored as hashes, revocable, each with limits of its own."""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
import sqlite3
import time
from collections.abc import Collection, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from agent.storage import open_database

_log = logging.getLogger("rejoinder.server")

KEYS_FILE = "keys.sqlite"
"""Its name in the data folder."""

KEY_PREFIX = "rj_"
"""Keys begin with this, so that people, logs and secret scanners recognize them."""

_KEY_BYTES = 32
"""Random bytes of a key. At this length nobody can guess one, so a plain SHA-256 protects it; slow password hashes are
for secrets that people choose."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_SCHEMA = """
create table if not exists keys (
    name text primary key,
    hash text not null unique,
    admin integer not null,
    conversations integer,
    minutes_per_day real,
    tokens_per_day integer,
    created_at real not null,
    revoked_at real
);
create table if not exists deletions (id integer primary key autoincrement, name text not null unique);
"""


@dataclass(frozen=True)
class KeyLimits:
    """What one key may use; None for no limit.

    Attributes:
        conversations: open at the same time.
        minutes_per_day: length of all conversations and transcribed recordings of a day (UTC).
        tokens_per_day: read and generated in a day (UTC).
    """

    conversations: int | None = None
    minutes_per_day: float | None = None
    tokens_per_day: int | None = None


@dataclass(frozen=True)
class ApiKey:
    """A key without its secret.

    Attributes:
        admin: whether it opens the dashboard, the metrics and `/drain`.
        created_at, revoked_at: Unix time in seconds.
    """

    name: str
    limits: KeyLimits = field(default_factory=KeyLimits)
    admin: bool = False
    created_at: float = 0.0
    revoked_at: float | None = None


class KeyStore:
    """The keys in an SQLite file.

    Args:
        path: created if missing.

    Raises:
        OSError: the file cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self._file = open_database(path, _SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def add(self, name: str, limits: KeyLimits | None = None, *, admin: bool = False) -> str:
        """Make a key. It is returned this once; only its hash is kept.

        Raises:
            ValueError: the name is invalid, or a key has or had it. Client secrets, notes and usage belong to a name,
                and would pass from the holder of a revoked key to that of the new one.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name for a key: use up to 64 letters, digits, dots, dashes and _")
        secret, limits = new_secret(), limits or KeyLimits()
        row = (name, digest(secret), admin, limits.conversations, limits.minutes_per_day, limits.tokens_per_day)
        try:
            with self._file:
                self._file.execute("insert into keys values (?, ?, ?, ?, ?, ?, ?, null)", (*row, time.time()))
        except sqlite3.IntegrityError:
            message = (
                f"a key is or was called {name!r}, and what belongs to it must not pass to another: choose a new name"
            )
            raise ValueError(message) from None
        return secret

    def revoke(self, name: str) -> None:
        """End a key. A running server closes its conversations within seconds. Raises ValueError if there is none."""
        with self._file:
            changed = self._file.execute(
                "update keys set revoked_at = ? where name = ? and revoked_at is null", (time.time(), name)
            ).rowcount
        if not changed:
            raise ValueError(f"there is no active key called {name!r}: `rejoinder keys list` shows all")

    def note_deletion(self, name: str) -> None:
        """The data of a key were deleted. A running server forgets what it keeps for the key in memory."""
        with self._file:
            self._file.execute("insert or replace into deletions (name) values (?)", (name,))

    def deletions(self, after: int = 0) -> tuple[list[str], int]:
        """The keys whose data were deleted after a deletion, and the number of the last deletion."""
        with closing(self._file.execute("select name, id from deletions where id > ? order by id", (after,))) as rows:
            found = rows.fetchall()
        return [name for name, _ in found], found[-1][1] if found else after

    def all_keys(self) -> list[ApiKey]:
        """Every key, revoked ones included, oldest first."""
        return self._select("order by created_at")

    def find(self, hashes: Collection[str]) -> ApiKey | None:
        """The active key with one of these hashes."""
        marks = ", ".join("?" * len(hashes))
        found = self._select(f"where revoked_at is null and hash in ({marks})", *hashes)
        return found[0] if found else None

    def _select(self, condition: str, *values: str) -> list[ApiKey]:
        columns = "name, admin, conversations, minutes_per_day, tokens_per_day, created_at, revoked_at"
        query = f"select {columns} from keys {condition}"  # nosec B608  # both are of this file
        with closing(self._file.execute(query, values)) as rows:
            return [
                ApiKey(name, KeyLimits(*limits), bool(admin), created_at, revoked_at)
                for name, admin, *limits, created_at, revoked_at in rows
            ]


class ApiKeys:
    """The keys that a server accepts: those of its command line, and those of a store, which may change meanwhile.

    Args:
        chosen: keys of the command line. They have no limits, and are called `option-` and the start of their hash.
        store: the keys that `rejoinder keys` manages.
        start: the admin key of this start of the server, which ends with it; empty for none.
    """

    def __init__(self, chosen: Iterable[str] = (), store: KeyStore | None = None, start: str = "") -> None:
        self._chosen = {one: ApiKey(f"option-{one[:8]}") for one in map(digest, chosen)}
        if start:
            self._chosen[digest(start)] = ApiKey("start", admin=True)
        self._store = store
        self._last_deletion = 0

    @property
    def required(self) -> bool:
        """Whether clients must send a key. That is so as soon as there is one, even if all were revoked."""
        if self._chosen or self._store is None:
            return bool(self._chosen)
        try:
            return bool(self._store.all_keys())
        except sqlite3.Error:
            return True

    @property
    def names(self) -> set[str]:
        """Of all keys, revoked ones included. Raises sqlite3.Error."""
        return {key.name for key in self._all()}

    def active_names(self) -> set[str]:
        """Of all keys that are accepted. While the store cannot be read, of those of the command line."""
        try:
            return {key.name for key in self._all() if key.revoked_at is None}
        except sqlite3.Error as error:
            _log.error("the file of API keys cannot be read (%s)", error)
            return {key.name for key in self._chosen.values()}

    def find(self, offered: Iterable[str]) -> ApiKey | None:
        """The active key that a client offered. No key is found while the store cannot be read."""
        hashes = [digest(secret) for secret in offered]
        chosen = next((self._chosen[one] for one in hashes if one in self._chosen), None)
        if chosen is not None or self._store is None or not hashes:
            return chosen
        try:
            return self._store.find(hashes)
        except sqlite3.Error as error:
            _log.error("the file of API keys cannot be read (%s), so clients are refused", error)
            return None

    def is_chosen(self, key: ApiKey) -> bool:
        """Whether the operator chose the key, so that it may be guessed. Those of the store are random."""
        return key in self._chosen.values()

    def named(self, name: str) -> ApiKey | None:
        """The active key of this name, with its present limits. Raises sqlite3.Error."""
        return next((key for key in self._all() if key.name == name and key.revoked_at is None), None)

    def current(self, key: ApiKey) -> ApiKey | None:
        """The key as it is now, with its present limits; None once it was revoked."""
        try:
            return key if self._store is None else self.named(key.name)
        except sqlite3.Error:
            return key

    def revoked(self) -> set[str]:
        """The names of all keys that were revoked; no other key ever gets them. Raises sqlite3.Error."""
        return {key.name for key in self._all() if key.revoked_at is not None}

    def _all(self) -> list[ApiKey]:
        """All keys, revoked ones included. Raises sqlite3.Error."""
        return [*self._chosen.values(), *(self._store.all_keys() if self._store is not None else [])]

    def deleted(self) -> list[str]:
        """The names of all keys that were revoked, and of those whose data were deleted since this was last called."""
        if self._store is None:
            return []
        try:
            names, self._last_deletion = self._store.deletions(self._last_deletion)
            return [*names, *self.revoked()]
        except sqlite3.Error:
            return []  # it is asked again


def new_secret() -> str:
    """The text of a key, which is stored nowhere."""
    return KEY_PREFIX + secrets.token_urlsafe(_KEY_BYTES)


def digest(secret: str) -> str:
    """What is kept of a secret: whoever reads it cannot use it."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
