"""Files of requests, and batches of them, as OpenAI's API has them, in an SQLite file. What was answered survives
`kill -9`: each answer is committed as it comes, so a batch goes on after the last one.

A file is kept as its lines. An answer has the number of the line that it belongs to, so a line without one is what is
left to do.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from agent.storage import forget_deleted, open_database
from server.budgets import BATCH_FILES, Budget

P = ParamSpec("P")
T = TypeVar("T")

BATCHES_FILE = "batches.sqlite"
"""Its name in the data folder."""

MAX_REQUESTS = 50_000
"""Lines of a file: OpenAI's limit."""

MAX_OPEN_BATCHES = 32
"""Batches of a key that are not finished."""

_BATCH_BYTES = 4096
"""What a batch itself counts for in the budget of its key: its metadata and its errors."""

BLANK = b" \t\r\n"
"""What JSON takes for white space. A line of nothing else is no request."""

_COMPLETION_WINDOW_S = 86_400.0

Status = Literal["validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"]

OPEN: tuple[Status, ...] = ("validating", "in_progress", "cancelling")
"""States of a batch that has something left to do."""

_OPEN = str(OPEN)
"""The same, in SQL."""

_SCHEMA = """
create table if not exists files (
    id text primary key, owner text not null, filename text not null, purpose text not null, bytes integer not null,
    created_at real not null, expires_at real not null, ready integer not null
);
create index if not exists files_owner on files (owner, created_at);
create table if not exists lines (
    file text not null, number integer not null, text blob not null, primary key (file, number)
);
create table if not exists batches (
    id text primary key, owner text not null, status text not null, endpoint text not null, input_file text not null,
    output_file text not null, error_file text not null, created_at real not null, expires_at real not null,
    total integer not null, details text not null, runner text not null, lease_until real not null,
    input_tokens integer not null, cached_tokens integer not null, output_tokens integer not null
);
create index if not exists batches_owner on batches (owner, created_at);
"""


class StorageFull(Exception):
    """A key, or all keys together, have used what they may store. The message is for the client."""


@dataclass(frozen=True)
class StoredFile:
    """A file. Times are Unix time in seconds."""

    id: str
    owner: str
    filename: str
    purpose: str
    bytes: int
    created_at: float
    expires_at: float
    ready: bool = True

    def body(self) -> dict[str, Any]:
        """The `file` object."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.bytes,
            "created_at": int(self.created_at),
            "expires_at": int(self.expires_at),
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
            "status_details": None,
        }


@dataclass(frozen=True)
class BatchUsage:
    """Tokens of all answers of a batch."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True)
class Batch:
    """A batch.

    Attributes:
        total: requests of the input file; 0 until it was checked.
        details: what is only repeated to the client: `metadata`, `errors`, when it got into which state, and which
            files it has.
        runner, lease_until: which process works on it, and how long at least.
    """

    id: str
    owner: str
    status: Status
    endpoint: str
    input_file: str
    output_file: str
    error_file: str
    created_at: float
    expires_at: float
    total: int = 0
    details: Mapping[str, Any] = field(default_factory=dict)
    runner: str = ""
    lease_until: float = 0.0
    usage: BatchUsage = field(default_factory=BatchUsage)

    def body(self, completed: int, failed: int) -> dict[str, Any]:
        """The `batch` object."""
        usage = self.usage
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.endpoint,
            "input_file_id": self.input_file,
            "completion_window": "24h",
            "status": self.status,
            "created_at": int(self.created_at),
            "expires_at": int(self.expires_at),
            "request_counts": {"total": self.total, "completed": completed, "failed": failed},
            "usage": {
                "input_tokens": usage.input_tokens,
                "input_tokens_details": {"cached_tokens": usage.cached_tokens},
                "output_tokens": usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.input_tokens + usage.output_tokens,
            },
            "output_file_id": None,
            "error_file_id": None,
            "errors": None,
            "metadata": None,
            **self.details,
        }


_FILE_COLUMNS = ", ".join(one.name for one in fields(StoredFile))
_BATCH_COLUMNS = (
    "id, owner, status, endpoint, input_file, output_file, error_file, created_at, expires_at, total, details, runner, "
    "lease_until, input_tokens, cached_tokens, output_tokens"
)


class BatchStore:
    """Files and batches. Methods may be called from any thread, and take milliseconds but for large files.

    Args:
        path: created if missing; None keeps everything in memory.
        clock: Unix time in seconds.

    Raises:
        OSError: the file cannot be used.
    """

    def __init__(
        self, path: Path | None = None, clock: Callable[[], float] = time.time, budget: Budget = BATCH_FILES
    ) -> None:
        if path is None:
            self._file = sqlite3.connect(":memory:", check_same_thread=False)
            self._file.executescript(_SCHEMA)
        else:
            self._file = open_database(path, _SCHEMA)
        self._lock, self._budget, self.clock = threading.RLock(), budget, clock
        self._log_has_deleted = True  # whether the write-ahead log may hold what was deleted, as of an earlier process
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="batches")

    async def call(self, method: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """The result of one of the other methods, which runs on a thread of the store's own."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(method, *arguments, **named))

    def close(self) -> None:
        """Close the file."""
        self._executor.shutdown()
        with self._lock:
            self._file.close()

    # Files

    def add_file(
        self, owner: str, filename: str, purpose: str, lines: Iterable[bytes], seconds: float | None = None
    ) -> StoredFile:
        """Store a file, given as lines with their ends.

        Args:
            seconds: how long, if not for as long as the budget allows.

        Raises:
            StorageFull: it does not fit; nothing is stored.
            ValueError: it has too many lines.
        """
        now = self.clock()
        expires_at = now + min(self._budget.seconds, seconds or self._budget.seconds)
        file = StoredFile(_new_id("file-"), owner, filename, purpose, 0, now, expires_at)
        size = 0
        with self._transaction() as db:
            for number, line in enumerate(lines, 1):
                if number > MAX_REQUESTS:
                    raise ValueError(f"the file has more than {MAX_REQUESTS:,} lines: split it")
                size += len(line)
                db.execute("insert into lines values (?, ?, ?)", (file.id, number, line))
            self._check_room(owner, size)
            file = replace(file, bytes=size)
            self._insert_file(file)
        return file

    def file(self, name: str, owner: str) -> StoredFile | None:
        """A file of this owner; None if there is none."""
        found = self._files("where id = ? and owner = ? and ready and expires_at > ?", name, owner, self.clock())
        return found[0] if found else None

    def files(self, owner: str, purpose: str | None, after: str, limit: int, *, newest_first: bool) -> list[StoredFile]:
        """Files of an owner, those after the one that is named."""
        order = "desc" if newest_first else "asc"
        files = self._files(f"where owner = ? and ready and expires_at > ? order by created_at {order}, rowid {order}",
                            owner, self.clock())  # fmt: skip
        return _page([file for file in files if purpose in (None, file.purpose)], after, limit)

    def lines(self, file: str, after: int, count: int) -> list[tuple[int, bytes]]:
        """The next lines of a file after a number, with their numbers."""
        query = "select number, text from lines where file = ? and number > ? order by number limit ?"
        return [(number, bytes(text)) for number, text in self._rows(query, file, after, count)]

    def delete_file(self, file: StoredFile) -> str:
        """Delete a file. Returns the batch that still needs it, in which case nothing is deleted; otherwise nothing."""
        with self._transaction() as db:
            query = f"select id from batches where input_file = ? and status in {_OPEN}"  # nosec B608
            for (batch,) in db.execute(query, (file.id,)):
                return str(batch)
            self._delete_files(db, "id = ?", file.id)
        self._forget()
        return ""

    # Batches

    def add_batch(
        self, owner: str, endpoint: str, file: str, metadata: Mapping[str, str] | None, output_seconds: float | None
    ) -> Batch:
        """A new batch. Raises StorageFull if the key has too many."""
        now = self.clock()
        batch = Batch(
            _new_id("batch_"), owner, "validating", endpoint, file, _new_id("file-"), _new_id("file-"), now,
            now + _COMPLETION_WINDOW_S, details={"metadata": metadata} if metadata else {},
        )  # fmt: skip
        expires_at = now + (output_seconds or self._budget.seconds)
        with self._transaction() as db:
            query = f"select count(*) from batches where owner = ? and status in {_OPEN}"  # nosec B608
            ((count,),) = db.execute(query, (owner,)).fetchall()
            if count >= MAX_OPEN_BATCHES:
                raise StorageFull(f"{count} batches are not finished, and a key may have {MAX_OPEN_BATCHES}: wait")
            self._check_room(owner, 0)
            values = (*astuple(batch)[:10], json.dumps(batch.details), "", 0.0, 0, 0, 0)
            db.execute(f"insert into batches ({_BATCH_COLUMNS}) values ({', '.join('?' * len(values))})", values)  # nosec B608
            for name, kind in ((batch.output_file, "output"), (batch.error_file, "error")):
                filename = f"{batch.id}_{kind}.jsonl"
                self._insert_file(StoredFile(name, owner, filename, "batch_output", 0, now, expires_at, ready=False))
        return batch

    def batch(self, name: str, owner: str) -> Batch | None:
        """A batch of this owner; None if there is none."""
        found = self._batches("where id = ? and owner = ?", name, owner)
        return found[0] if found else None

    def batches(self, owner: str, after: str, limit: int) -> list[Batch]:
        """Batches of an owner, the newest first, those after the one that is named."""
        return _page(self._batches("where owner = ? order by created_at desc, rowid desc", owner), after, limit)

    def counts(self, batch: Batch) -> tuple[int, int]:
        """How many requests of a batch were answered, and how many failed."""
        query = "select (select count(*) from lines where file = ?), (select count(*) from lines where file = ?)"
        ((completed, failed),) = self._rows(query, batch.output_file, batch.error_file)
        return completed, failed

    def claim(self, runner: str, seconds: float, owners: Collection[str]) -> list[Batch]:
        """The batches that this process works on for so long, the oldest first: its own, and those that no other
        process works on.

        Args:
            owners: whose batches it may work on. Those of others are only claimed once they have expired.
        """
        now = self.clock()
        open_ones = f"status in {_OPEN} and (expires_at <= ? or owner in ({', '.join('?' * len(owners))}))"
        with self._transaction() as db:
            update = (
                "update batches set runner = ?, lease_until = ? where (runner = ? or lease_until < ?) "
                f"and {open_ones}"  # nosec B608
            )
            db.execute(update, (runner, now + seconds, runner, now, now, *owners))
        return self._batches(f"where runner = ? and {open_ones} order by created_at, rowid", runner, now, *owners)

    def release(self, runner: str) -> None:
        """This process ends: another one may go on with its batches at once."""
        with self._transaction() as db:
            db.execute("update batches set lease_until = 0 where runner = ?", (runner,))

    def unanswered(self, batch: Batch, after: int, count: int) -> list[tuple[int, bytes]]:
        """The next requests after a line that have no answer, with the numbers of their lines. Empty lines are none."""
        query = (
            "select number, text from lines as request where file = ? and number > ? and not exists (select 1 from "
            "lines where file in (?, ?) and number = request.number) and trim(cast(text as text), ?) != '' "
            "order by number limit ?"
        )
        rows = self._rows(query, batch.input_file, after, batch.output_file, batch.error_file, BLANK.decode(), count)
        return [(number, bytes(text)) for number, text in rows]

    def record(self, batch: Batch, number: int, answer: bytes, usage: BatchUsage, *, failed: bool = False) -> None:
        """Keep the answer to a line, unless it has one, or the batch was deleted. Raises StorageFull."""
        file = batch.error_file if failed else batch.output_file
        with self._transaction() as db:
            known = "select 1 from lines where file in (?, ?) and number = ?"
            if db.execute(known, (batch.output_file, batch.error_file, number)).fetchall():
                return
            self._check_room(batch.owner, len(answer))
            if db.execute("update files set bytes = bytes + ? where id = ?", (len(answer), file)).rowcount:
                db.execute("insert into lines values (?, ?, ?)", (file, number, answer))
            db.execute(
                "update batches set input_tokens = input_tokens + ?, cached_tokens = cached_tokens + ?, "
                "output_tokens = output_tokens + ? where id = ?",
                (*astuple(usage), batch.id),
            )

    def change(self, batch: Batch, status: Status, total: int | None = None, **details: Any) -> Batch:
        """Bring a batch into another state, unless it was finished or, by its client, cancelled meanwhile. Its files
        can be read once it is finished, and are kept from then on. Returns what it is now."""
        finished, now = status not in OPEN, self.clock()
        with self._transaction() as db:
            found = db.execute("select status, details from batches where id = ?", (batch.id,)).fetchall()
            if found and found[0][0] in OPEN and (found[0][0] != "cancelling" or finished):
                noted = {**json.loads(found[0][1]), f"{status}_at": int(now), **details}
                if finished:
                    db.execute(
                        "update files set ready = 1, created_at = ?, expires_at = ? + expires_at - created_at "
                        "where id in (?, ?) and bytes > 0",
                        (now, now, batch.output_file, batch.error_file),
                    )
                    query = "select id from files where ready and id in (?, ?)"
                    ready = {name for (name,) in db.execute(query, (batch.output_file, batch.error_file))}
                    noted["output_file_id"] = batch.output_file if batch.output_file in ready else None
                    noted["error_file_id"] = batch.error_file if batch.error_file in ready else None
                db.execute(
                    "update batches set status = ?, details = ?, total = coalesce(?, total) where id = ?",
                    (status, json.dumps(noted), total, batch.id),
                )
        return next(iter(self._batches("where id = ?", batch.id)), batch)

    # Of all owners

    def owners(self) -> list[str]:
        """Everybody who has files or batches."""
        return [owner for (owner,) in self._rows("select owner from files union select owner from batches")]

    def forget(self, owner: str) -> int:
        """Delete all files and batches of an owner. Returns how many there were."""
        with self._transaction() as db:
            tables = ("files", "batches")
            counts = [next(db.execute(f"select count(*) from {one} where owner = ?", (owner,)))[0] for one in tables]  # nosec B608
            self._delete_files(db, "owner = ?", owner)
            self._delete(db, "delete from batches where owner = ?", owner)
        self._forget()
        return sum(counts)

    def purge(self) -> None:
        """Delete what has expired: files that no batch needs, and batches that are finished."""
        now = self.clock()
        with self._transaction() as db:
            needed = f"from batches where status in {_OPEN}"  # nosec B608
            unneeded = " and ".join(
                f"id not in (select {column} {needed})" for column in ("input_file", "output_file", "error_file")
            )
            self._delete_files(db, f"expires_at <= ? and {unneeded}", now)
            old = f"delete from batches where created_at <= ? and status not in {_OPEN}"  # nosec B608
            self._delete(db, old, now - self._budget.seconds)
        self._forget()

    def _insert_file(self, file: StoredFile) -> None:
        self._file.execute(
            f"insert into files ({_FILE_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, ?)",  # nosec B608  # fields of StoredFile
            astuple(file),
        )

    def _check_room(self, owner: str, size: int) -> None:
        """Raise StorageFull if so many more bytes are too many for a key, or for all together."""
        used, total = self._used("where owner = ?", owner), self._used()
        if used + size > self._budget.bytes:
            most = f"{self._budget.bytes >> 20} MiB"
            raise StorageFull(f"this key's files may take {most} together, and take {used >> 20} MiB: delete some")
        if self._budget.total is not None and total + size > self._budget.total:
            raise StorageFull("the server's storage for batches is full: try again later")

    def _used(self, condition: str = "", *values: str) -> int:
        ((size,),) = self._rows(f"select coalesce(sum(bytes), 0) from files {condition}", *values)  # nosec B608
        ((count,),) = self._rows(f"select count(*) from batches {condition}", *values)  # nosec B608
        return int(size + _BATCH_BYTES * count)

    def _delete_files(self, db: sqlite3.Connection, condition: str, *values: Any) -> None:
        self._delete(db, f"delete from lines where file in (select id from files where {condition})", *values)  # nosec B608
        self._delete(db, f"delete from files where {condition}", *values)  # nosec B608

    def _delete(self, db: sqlite3.Connection, statement: str, *values: Any) -> None:
        if db.execute(statement, values).rowcount:
            self._log_has_deleted = True

    def _files(self, condition: str, *values: Any) -> list[StoredFile]:
        rows = self._rows(f"select {_FILE_COLUMNS} from files {condition}", *values)  # nosec B608
        return [StoredFile(*row) for row in rows]

    def _batches(self, condition: str, *values: Any) -> list[Batch]:
        rows = self._rows(f"select {_BATCH_COLUMNS} from batches {condition}", *values)  # nosec B608
        filled: Iterator[tuple[Any, ...]] = (
            (*row[:10], json.loads(row[10]), row[11], row[12], BatchUsage(*row[13:])) for row in rows
        )
        return [Batch(*each) for each in filled]

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._file.execute(query, values).fetchall()

    def _forget(self) -> None:
        """Clear the log, unless nothing was deleted since that last succeeded: without batches nothing is written."""
        with self._lock:
            if self._log_has_deleted:
                self._log_has_deleted = not forget_deleted(self._file)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._file:
            yield self._file


def _new_id(prefix: str) -> str:
    return f"{prefix}{secrets.token_hex(16)}"


def _page(items: list[Any], after: str, limit: int) -> list[Any]:
    """The next items after the one that is named; none if it is not among them."""
    start = 0 if not after else next((n for n, item in enumerate(items, 1) if item.id == after), len(items))
    return items[start : start + limit]
