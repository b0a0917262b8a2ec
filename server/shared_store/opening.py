"""Opens the shared records, wherever they are kept."""

from __future__ import annotations

from pathlib import Path

from server.shared_store.store import RecordStore, SQLiteStore


def open_store(location: str) -> RecordStore:
    """A store by its location: a path, or a URL like `redis://:PASSWORD@HOST:6379/0`.

    Raises:
        OSError: it cannot be used.
        ValueError: the client for it is not installed, or the URL is wrong.
    """
    if "://" not in location:
        return SQLiteStore(Path(location))
    from server.shared_store.redis_store import RedisStore  # needs another package

    return RedisStore(location)
