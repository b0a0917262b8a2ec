"""Turns of real conversations, kept in an SQLite file: what `rejoinder serve --timelines` writes and
`rejoinder report --live` reads. Written by a thread of its own; a conversation never waits for the disk."""

from __future__ import annotations

import json
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from voice.history import Item

_log = logging.getLogger("rejoinder.server")

_DAY_S = 86_400.0

_WAITING = 1000
"""Turns that may wait for a slow disk; more are dropped, which is said once."""

_SCHEMA = """
create table if not exists turns (
    turn_id text not null,
    at real not null,
    latency_ms real,
    stages_ms text not null,
    told text not null,
    status text not null,
    transcript text,
    answer text
);
create index if not exists turns_at on turns (at);
"""

_APART = frozenset(["type", "event_id", "turn_id", "response_id", "item_id", "latency_ms", "stages_ms"])
"""Fields of a `rejoinder.turn` event that have a column of their own, or say nothing later."""


@dataclass(frozen=True)
class TurnRecord:
    """One turn of a real conversation.

    Attributes:
        at: seconds since 1970.
        latency_ms: as the server saw it; None when nothing was spoken.
        told: what else the server says of the turn: tokens, guesses, waits.
        status: how the answer ended: completed, cancelled, incomplete or failed.
        transcript, answer: what was said, and what was heard of the answer; None where no text is kept.
    """

    turn_id: str
    at: float
    latency_ms: float | None
    stages_ms: dict[str, float]
    told: dict[str, Any] = field(default_factory=dict)
    status: str = "completed"
    transcript: str | None = None
    answer: str | None = None

    @classmethod
    def of(cls, turn: Mapping[str, Any], status: str, transcript: str, answer: str) -> TurnRecord:
        """A turn that ends now, from its `rejoinder.turn` event."""
        told = {name: value for name, value in turn.items() if name not in _APART and value is not None}
        return cls(
            str(turn["turn_id"]),
            time.time(),
            turn["latency_ms"],
            dict(turn["stages_ms"]),
            told,
            status,
            transcript,
            answer,
        )


class TimelineStore:
    """Keeps turns; those older than `keep_days` are deleted at the start and once a day.

    Args:
        path: the SQLite file; made if it is not there.
        keep_text: whether transcripts and answers are kept too.

    Raises:
        OSError: the file cannot be used.
    """

    def __init__(self, path: Path, *, keep_days: float = 30.0, keep_text: bool = True) -> None:
        self._path, self._keep_s, self._keep_text = path, keep_days * _DAY_S, keep_text
        self._waiting: queue.Queue[TurnRecord | None] = queue.Queue(_WAITING)
        self._complained = False
        try:
            with closing(_opened(path)) as file, file:
                file.executescript(_SCHEMA)
                self._prune(file)
        except sqlite3.Error as error:
            raise OSError(f"the timelines file {path} cannot be used ({error}): give another one") from None
        self._thread = threading.Thread(target=self._write, name="timelines", daemon=True)
        self._thread.start()

    def keep(self, record: TurnRecord) -> None:
        """Keep a turn; returns at once and never fails."""
        try:
            self._waiting.put_nowait(record)
        except queue.Full:
            self._complain("the disk does not keep up")

    def close(self) -> None:
        """Write what waits, and end."""
        try:
            self._waiting.put(None, timeout=5)
        except queue.Full:
            return  # the disk hangs; the thread is a daemon
        self._thread.join(5)

    def _write(self) -> None:
        pruned = time.monotonic()
        while (record := self._waiting.get()) is not None:
            try:
                with closing(_opened(self._path)) as file, file:
                    file.executescript(_SCHEMA)  # the file may have been taken away meanwhile
                    file.execute("insert into turns values (?, ?, ?, ?, ?, ?, ?, ?)", self._row(record))
                    if time.monotonic() - pruned > _DAY_S:
                        self._prune(file)
                        pruned = time.monotonic()
            except sqlite3.Error as error:
                self._complain(str(error))

    def _row(self, record: TurnRecord) -> tuple[str | float | None, ...]:
        said = (record.transcript, record.answer) if self._keep_text else (None, None)
        stages, told = json.dumps(record.stages_ms), json.dumps(record.told)
        return (record.turn_id, record.at, record.latency_ms, stages, told, record.status, *said)

    def _prune(self, file: sqlite3.Connection) -> None:
        file.execute("delete from turns where at < ?", (time.time() - self._keep_s,))

    def _complain(self, why: str) -> None:
        if not self._complained:
            self._complained = True
            _log.error("turns are not kept in %s (%s); conversations go on", self._path, why)


def said_before(items: Sequence[Item], answer: Item) -> str:
    """What the user said last before an answer; empty when nothing is known of it."""
    places = [n for n, item in enumerate(items) if item is answer]
    earlier = items[: places[0]] if places else ()
    return next((item.text for item in reversed(earlier) if item.role == "user"), "")


def read(path: Path) -> list[TurnRecord]:
    """The turns in a file, oldest first.

    Raises:
        OSError: it is missing, or something else.
    """
    if not path.is_file():
        raise OSError(f"there is no timelines file {path}: `rejoinder serve --timelines {path}` writes one")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as file:
            rows = file.execute("select * from turns order by at").fetchall()
        return [
            TurnRecord(turn_id, at, latency, json.loads(stages), json.loads(told), status, transcript, answer)
            for turn_id, at, latency, stages, told, status, transcript, answer in rows
        ]
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise OSError(f"{path} is no timelines file ({error})") from None


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=5)
