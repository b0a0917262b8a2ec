"""The turn log: an SQLite file that `rejoinder serve --turn-log` writes and `rejoinder report --turn-log` reads. It is
written by a thread of its own, so that conversations never wait for the disk."""

from __future__ import annotations

import json
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.storage import forget_deleted, open_database
from voice.history import HistoryItem, Item

_log = logging.getLogger("rejoinder.server")

_DAY_S = 86_400.0

_MAX_QUEUED_TURNS = 1000
"""Turns that may queue for a slow disk. Further ones are dropped, with one log message."""

_SCHEMA = """
create table if not exists turns (
    turn_id text not null,
    at real not null,
    latency_ms real,
    stages_ms text not null,
    told text not null,
    status text not null,
    transcript text,
    answer text,
    key text not null default '',
    caller text not null default ''
);
create index if not exists turns_at on turns (at);
"""

_ADDED_COLUMNS = ("key", "caller")
"""Columns that files of earlier versions lack."""


@dataclass(frozen=True)
class TurnRecord:
    """One turn of a real conversation.

    Attributes:
        ended_at: Unix time in seconds.
        latency_ms: as measured by the server; None when the response was not spoken.
        details: the remaining fields of the `rejoinder.turn` event: tokens, speculations, waiting times.
        status: of the response: completed, cancelled, incomplete or failed.
        transcript: what the user said; None if the log keeps no text.
        response: the part of the response that was heard; None if the log keeps no text.
        key: name of the client's API key; empty if it had none.
        caller: phone number of a call, as the carrier reports it.
        speech_ended_at: Unix time of the user's last sample; None if the response answers no speech. Not stored.
    """

    turn_id: str
    ended_at: float
    latency_ms: float | None
    stages_ms: dict[str, float]
    details: dict[str, Any] = field(default_factory=dict)
    status: str = "completed"
    transcript: str | None = None
    response: str | None = None
    key: str = ""
    caller: str = ""
    speech_ended_at: float | None = None


class TurnLog:
    """Records turns. Turns older than `keep_days` are deleted at the start and once a day.

    Args:
        path: the SQLite file, created if missing.
        keep_text: whether to record transcripts and the text of responses.

    Attributes:
        dropped: turns that could not be recorded.

    Raises:
        OSError: the file cannot be used.
    """

    def __init__(self, path: Path, *, keep_days: float = 30.0, keep_text: bool = True) -> None:
        self._path, self._keep_s, self._keep_text = path, keep_days * _DAY_S, keep_text
        self._queue: queue.Queue[TurnRecord | None] = queue.Queue(_MAX_QUEUED_TURNS)
        self._error_logged, self.dropped = False, 0
        try:
            with closing(_open(path)) as file:
                self._prune(file)
        except (sqlite3.Error, OSError) as error:
            raise OSError(f"cannot use the turn log {path} ({error}): choose another file") from None
        self._thread = threading.Thread(target=self._write, name="turn-log", daemon=True)
        self._thread.start()

    def record(self, record: TurnRecord) -> None:
        """Queue a turn for writing; returns immediately and never fails."""
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self.dropped += 1
            self._log_error_once("the disk is too slow")

    def close(self) -> None:
        """Write the queued turns and stop the thread."""
        try:
            self._queue.put(None, timeout=5)
        except queue.Full:
            return  # the disk hangs; the thread is a daemon, so that the process can end
        self._thread.join(5)

    def _write(self) -> None:
        pruned_at = time.monotonic()
        while (record := self._queue.get()) is not None:
            try:
                with closing(_open(self._path)) as file:  # anew, as the file may have been deleted meanwhile
                    with file:
                        file.execute("insert into turns values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", self._row(record))
                    if time.monotonic() - pruned_at > _DAY_S:
                        self._prune(file)
                        pruned_at = time.monotonic()
            except Exception as error:  # of the disk, or of this turn: the next one is written
                self.dropped += 1
                self._log_error_once(str(error))

    def _row(self, record: TurnRecord) -> tuple[str | float | None, ...]:
        texts = (record.transcript, record.response) if self._keep_text else (None, None)
        stages, details = json.dumps(record.stages_ms), json.dumps(record.details)
        who = (record.key, record.caller)
        return (record.turn_id, record.ended_at, record.latency_ms, stages, details, record.status, *texts, *who)

    def _prune(self, file: sqlite3.Connection) -> None:
        with file:
            file.execute("delete from turns where at < ?", (time.time() - self._keep_s,))
        forget_deleted(file)

    def _log_error_once(self, reason: str) -> None:
        if not self._error_logged:
            self._error_logged = True
            _log.error("cannot record turns in %s (%s); conversations are not affected", self._path, reason)


def last_user_text(items: Sequence[HistoryItem], response: HistoryItem) -> str:
    """The last user text before a response; empty if there is none."""
    positions = [n for n, item in enumerate(items) if item is response]
    earlier = items[: positions[0]] if positions else ()
    return next((item.text for item in reversed(earlier) if isinstance(item, Item) and item.role == "user"), "")


def read_turn_log(path: Path) -> list[TurnRecord]:
    """The recorded turns, oldest first.

    Raises:
        OSError: the file is missing or not a turn log.
    """
    if not path.is_file():
        raise OSError(f"there is no turn log {path}: `rejoinder serve --turn-log {path}` writes one")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            rows = file.execute("select * from turns order by at").fetchall()
        return [
            TurnRecord(
                turn_id, ended_at, latency, json.loads(stages), json.loads(details), status, transcript, response, *who
            )
            for turn_id, ended_at, latency, stages, details, status, transcript, response, *who in rows
        ]
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise OSError(f"{path} is not a turn log ({error})") from None


def delete_turns(path: Path, *, key: str | None = None, caller: str | None = None) -> int:
    """Delete the turns of an API key or of a phone number; `erase_deleted` then leaves nothing of them. Returns their
    number.

    Raises:
        OSError: the file is missing or not a turn log.
    """
    read_turn_log(path)
    query = "delete from turns where key = ?" if key is not None else "delete from turns where caller = ?"
    with closing(_open(path)) as file, file:
        return file.execute(query, (caller if key is None else key,)).rowcount


def _open(path: Path) -> sqlite3.Connection:
    """The file, with the columns that an earlier version lacks. Raises OSError."""
    file = open_database(path, _SCHEMA)
    present = {row[1] for row in file.execute("pragma table_info(turns)")}
    for column in _ADDED_COLUMNS:
        if column not in present:
            file.execute(f"alter table turns add column {column} text not null default ''")
    return file
