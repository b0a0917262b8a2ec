"""SQLite files that survive a killed process or machine: write-ahead logging, readable by their owner only."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

_BUSY_TIMEOUT_S = 5.0
"""How long to wait for another process that writes, such as `rejoinder keys`, which takes milliseconds."""


def data_folder() -> Path:
    """Where keys and usage are kept: `$REJOINDER_DATA`, or the user's data directory."""
    configured = os.environ.get("REJOINDER_DATA")
    if configured:
        return Path(configured)
    from platformdirs import user_data_path  # not needed if the variable is set

    return user_data_path("rejoinder")


def open_database(path: Path, schema: str) -> sqlite3.Connection:
    """Open an SQLite file, creating it if it is missing. Committed transactions survive `kill -9`. Only its owner can
    read it, and what is deleted leaves nothing in it; `forget_deleted` clears the write-ahead log, too.

    The connection may be used from any thread, but from one at a time. Changes take effect at the end of a `with` block
    over the connection, or at once where its `isolation_level` is None.

    Args:
        schema: statements that create what is missing.

    Raises:
        OSError: the file cannot be used.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
        path.chmod(0o600)  # an earlier version may have let others read it
        connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, check_same_thread=False)
        try:
            connection.execute("pragma journal_mode = wal")
            connection.execute("pragma synchronous = normal")  # only a power failure can lose a transaction
            connection.execute("pragma secure_delete = on")
            connection.executescript(schema)
        except sqlite3.Error:
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise OSError(f"cannot use the file {path} ({error}): choose another place, or set REJOINDER_DATA") from None
    return connection


def forget_deleted(file: sqlite3.Connection) -> bool:
    """Clear the write-ahead log, which holds what deleted rows were. Takes milliseconds, outside of a transaction.
    Returns False if another process reads: then the log stays until the next time."""
    ((busy, _, _),) = file.execute("pragma wal_checkpoint(truncate)").fetchall()
    return not busy


def erase_deleted(*paths: Path, remedy: str = "run this again") -> None:
    """Write files anew, without what was deleted and left in them. Raises OSError, which names a remedy, if one still
    holds it, after all were tried."""
    problems = [problem for path in paths if (problem := _erase(path))]
    if problems:
        raise OSError(f"{'; '.join(problems)}: {remedy}")


def _erase(path: Path) -> str:
    """Write a file anew. Returns why it still holds what was deleted, or nothing."""
    with closing(open_database(path, "")) as file:
        try:
            file.execute("vacuum")
            erased = forget_deleted(file)
        except sqlite3.Error as error:
            return f"{path} still holds what was deleted ({error})"
    return "" if erased else f"{path} still holds what was deleted, as another process reads it"
