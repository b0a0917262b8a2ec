"""What each key has used, by day: conversation and audio minutes, tokens, processor seconds. Written to an SQLite file
every few seconds, so a killed process loses the last of them only."""

from __future__ import annotations

import datetime
import logging
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from contextvars import ContextVar
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from agent.storage import open_database
from server.access.keys import ApiKey

_log = logging.getLogger("rejoinder.server")

USAGE_FILE = "usage.sqlite"
"""Its name in the data folder."""

NO_KEY = ""
"""The name under which usage without a key is counted."""


def key_name(key: ApiKey | None) -> str:
    """The name under which what a key does is counted and kept."""
    return key.name if key is not None else NO_KEY


@dataclass(frozen=True)
class Usage:
    """What was used.

    Attributes:
        conversations: that were opened, phone calls included.
        seconds: length of all conversations and of all recordings that were transcribed.
        audio_in_s, audio_out_s: audio received and sent.
        turns: responses of conversations.
        completions: responses of the text API.
        input_tokens: read, those from the cache included.
        cached_tokens: of those, how many were in the cache.
        output_tokens: generated.
        cpu_s: processor time of the server, divided equally among whoever used it at the time.
        remote_requests: to the bigger model on another server.
        remote_input_tokens, remote_output_tokens: read and generated there; not among the tokens above.
    """

    conversations: int = 0
    seconds: float = 0.0
    audio_in_s: float = 0.0
    audio_out_s: float = 0.0
    turns: int = 0
    completions: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cpu_s: float = 0.0
    remote_requests: int = 0
    remote_input_tokens: int = 0
    remote_output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        """The sum."""
        return Usage(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))

    @property
    def tokens(self) -> int:
        """Read and generated, here and elsewhere."""
        return self.input_tokens + self.output_tokens + self.remote_input_tokens + self.remote_output_tokens


_COLUMNS = {
    field.name: f"{field.name} {'real' if field.type == 'float' else 'integer'} not null default 0"
    for field in fields(Usage)
}
"""The definition of each column. Files of earlier versions lack some."""

_SCHEMA = f"""
create table if not exists usage (
    day text not null,
    key text not null,
    {", ".join(_COLUMNS.values())},
    primary key (day, key)
);
"""


class UsageLog:
    """Counts usage by key and day (UTC). Several servers may share a file; each learns what the others counted when it
    saves its own.

    Args:
        path: the SQLite file; None counts in memory only.
        clock: Unix time in seconds.

    Attributes:
        total: of all keys since the start.

    Raises:
        OSError: the file cannot be used.
    """

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self._file = None if path is None else _open(path)
        self._clock, self._error_logged, self._lock = clock, False, threading.Lock()
        self.total = Usage()
        self._today: dict[str, Usage] = {}
        self._day, self._unsaved = self._current_day(), dict[tuple[str, str], Usage]()
        if self._file is not None:
            self._today = {key: usage for _, key, usage in _rows(self._file, self._day)}

    def add(self, key: str, usage: Usage) -> None:
        """Count usage of a key, `NO_KEY` for none."""
        day = self._current_day()
        if day != self._day:
            self._day, self._today = day, {}
        self.total += usage
        self._today[key] = self._today.get(key, Usage()) + usage
        if self._file is not None:
            with self._lock:
                self._unsaved[day, key] = self._unsaved.get((day, key), Usage()) + usage

    def today(self, key: str) -> Usage:
        """What a key has used since midnight UTC."""
        return self._today.get(key, Usage()) if self._current_day() == self._day else Usage()

    def save(self) -> None:
        """Write what was counted since the last time. If that fails, it is tried again the next time. May be called
        from any thread, by one at a time."""
        with self._lock:
            pending, self._unsaved = self._unsaved, {}
        if self._file is None or not pending:
            return
        updates = ", ".join(f"{name} = {name} + excluded.{name}" for name in _COLUMNS)
        statement = (
            f"insert into usage (day, key, {', '.join(_COLUMNS)}) "  # nosec B608  # fields of Usage
            f"values (?, ?{', ?' * len(_COLUMNS)}) on conflict (day, key) do update set {updates}"
        )
        try:
            with self._file:
                self._file.executemany(statement, [(*place, *astuple(usage)) for place, usage in pending.items()])
            self._error_logged = False
        except sqlite3.Error as error:
            with self._lock:
                for place, usage in pending.items():
                    self._unsaved[place] = usage + self._unsaved.get(place, Usage())
            if not self._error_logged:
                _log.error("usage cannot be recorded (%s); conversations are not affected", error)
            self._error_logged = True
        else:
            self._learn(self._file)

    def _learn(self, file: sqlite3.Connection) -> None:
        """Read what all servers have counted today."""
        try:
            stored = {key: usage for day, key, usage in _rows(file, self._day) if day == self._day}
        except sqlite3.Error:
            return  # it is tried again with the next save
        with self._lock:
            for (day, key), usage in self._unsaved.items():
                if day == self._day:
                    stored[key] = stored.get(key, Usage()) + usage
            self._today = stored

    def close(self) -> None:
        """Write what is left, and close the file."""
        self.save()
        if self._file is not None:
            self._file.close()

    def _current_day(self) -> str:
        return datetime.datetime.fromtimestamp(self._clock(), datetime.UTC).date().isoformat()


@dataclass(frozen=True)
class UsageMeter:
    """Counts what one conversation or request uses.

    Attributes:
        key: the name of its key, `NO_KEY` for none.
    """

    log: UsageLog
    key: str = NO_KEY

    def add(self, usage: Usage) -> None:
        """Count."""
        self.log.add(self.key, usage)


current_meter: ContextVar[UsageMeter | None] = ContextVar("current_meter", default=None)
"""The meter of the request that is being handled. Tasks inherit it from the one that starts them."""


def current_key() -> str:
    """The name of the key of the request that is being handled; `NO_KEY` if it has none."""
    meter = current_meter.get()
    return NO_KEY if meter is None else meter.key


def read_usage(path: Path, since_day: str = "") -> list[tuple[str, str, Usage]]:
    """Day, key and usage, oldest first. Raises OSError if there is no such file."""
    if not path.is_file():
        raise OSError(f"there is no record of usage at {path}: `rejoinder serve` writes one")
    with closing(_open(path)) as file:
        return _rows(file, since_day)


def delete_usage(path: Path, key: str) -> int:
    """Delete what is recorded of a key; `erase_deleted` then leaves nothing of it. Returns the number of days."""
    if not path.is_file():
        return 0
    with closing(_open(path)) as file, file:
        return file.execute("delete from usage where key = ?", (key,)).rowcount


def _open(path: Path) -> sqlite3.Connection:
    """The file, with the columns that an earlier version lacks. Raises OSError."""
    file = open_database(path, _SCHEMA)
    present = {row[1] for row in file.execute("pragma table_info(usage)")}
    for name, definition in _COLUMNS.items():
        if name not in present:
            file.execute(f"alter table usage add column {definition}")
    return file


def _rows(file: sqlite3.Connection, since_day: str) -> list[tuple[str, str, Usage]]:
    columns = ", ".join(_COLUMNS)
    statement = f"select day, key, {columns} from usage where day >= ? order by day, key"  # nosec B608  # fields of Usage
    with closing(file.execute(statement, (since_day,))) as rows:
        return [(day, key, Usage(*values)) for day, key, *values in rows]
