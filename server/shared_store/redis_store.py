"""Shared records on a server that speaks the Redis protocol: Redis, Valkey, KeyDB, Dragonfly. Needs the `redis` package
(the `cluster` extra)."""

from __future__ import annotations

from typing import Any

from server.shared_store.store import TAKEN, StoreUnavailable

_PREFIX = "rejoinder:"
"""Of all keys, so that a server may serve others as well."""

_TIMEOUT_S = 2.0

_PUT = """
if redis.call('get', KEYS[1]) == '' then return 0 end
redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""

_TAKE = """
local value = redis.call('get', KEYS[1])
if not value or value == '' then return false end
redis.call('set', KEYS[1], '', 'PX', ARGV[1])
return value
"""


class RedisStore:
    """A `RecordStore`.

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
            message = 'records on a Redis server need another package: pip install "rejoinder[cluster]"'
            raise ValueError(message) from None
        self._errors = redis.RedisError
        self._client: Any = redis.Redis.from_url(url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S)
        self._put, self._take = self._client.register_script(_PUT), self._client.register_script(_TAKE)
        try:
            self._client.ping()
        except self._errors as error:
            self._client.close()
            raise OSError(f"the server of the shared records cannot be used ({error}): check --records") from None

    def put(self, key: str, value: bytes, seconds: float) -> bool:
        """See `RecordStore`."""
        return bool(self._call(self._put, keys=[_PREFIX + key], args=[value, _milliseconds(seconds)]))

    def get(self, key: str) -> bytes | None:
        """See `RecordStore`."""
        return self._call(self._client.get, _PREFIX + key) or None

    def take(self, key: str, seconds: float) -> bytes | None:
        """See `RecordStore`."""
        value: bytes | None = self._call(self._take, keys=[_PREFIX + key], args=[_milliseconds(seconds)])
        return value

    def delete(self, key: str) -> None:
        """See `RecordStore`."""
        self._call(self._client.delete, _PREFIX + key)

    def scan(self, prefix: str) -> dict[str, bytes]:
        """See `RecordStore`."""
        keys = [bytes(key) for key in self._call(lambda: list(self._client.scan_iter(f"{_PREFIX}{prefix}*", 1000)))]
        values = self._call(self._client.mget, keys) if keys else []
        found = zip(keys, values, strict=True)
        return {key.decode().removeprefix(_PREFIX): value for key, value in found if value not in (None, TAKEN)}

    def close(self) -> None:
        """See `RecordStore`."""
        self._client.close()

    def _call(self, function: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except self._errors as error:
            raise StoreUnavailable(f"the server of the shared records does not answer ({error})") from None


def _milliseconds(seconds: float) -> int:
    return max(1, int(1000 * seconds))
