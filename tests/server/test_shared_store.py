"""Shared records, in a file and on a Redis server."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from server.shared_store import RecordStore, SQLiteStore, StoreUnavailable, open_store


@pytest.fixture(params=["file", "redis"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Where two replicas keep their records."""
    if request.param == "file":
        yield str(tmp_path / "records.sqlite")
        return
    pytest.importorskip("redis", reason='redis is not installed: pip install -e ".[cluster]"')
    binary = shutil.which("redis-server") or shutil.which("valkey-server")
    if binary is None:
        pytest.skip("no Redis server is installed (Debian: apt install redis-server)")
    path = tmp_path / "redis.socket"
    command = [binary, "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(tmp_path)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            while client.connect_ex(str(path)) != 0:
                time.sleep(0.01)
        yield f"unix://{path}"
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def replicas(location: str) -> Iterator[tuple[RecordStore, RecordStore]]:
    stores = open_store(location), open_store(location)
    yield stores
    for store in stores:
        store.close()


def test_what_one_replica_stores_another_one_reads(replicas: tuple[RecordStore, RecordStore]) -> None:
    first, second = replicas
    assert second.get("session/a") is None
    assert first.put("session/a", b"one", 60) and first.put("session/b", b"two", 60) and first.put("other", b"x", 60)
    assert second.put("session/a", b"\x00changed", 60)
    assert first.get("session/a") == b"\x00changed"
    assert second.scan("session/") == {"session/a": b"\x00changed", "session/b": b"two"}
    first.delete("session/a")
    assert second.get("session/a") is None


def test_only_one_replica_takes_a_record_and_its_earlier_owner_learns_of_it(
    replicas: tuple[RecordStore, RecordStore],
) -> None:
    first, second = replicas
    first.put("session/a", b"one", 60)
    assert second.take("session/a", 60) == b"one"
    assert second.take("session/a", 60) is None and first.take("session/a", 60) is None
    assert first.get("session/a") is None and first.scan("session/") == {}
    assert not first.put("session/a", b"late", 60)
    second.delete("session/a")
    assert first.put("session/a", b"again", 60)
    assert first.take("session/missing", 60) is None


def test_an_owner_claims_its_record_unless_somebody_took_it(replicas: tuple[RecordStore, RecordStore]) -> None:
    first, second = replicas
    first.put("session/a", b"one", 60)
    for name in ("session/a", "session/never stored"):
        assert first.claim(name, 60)
        assert second.take(name, 60) is None and not first.put(name, b"late", 60)
    first.put("session/b", b"two", 60)
    assert second.take("session/b", 0.05) == b"two" and not first.claim("session/b", 60)
    time.sleep(0.1)
    assert first.claim("session/b", 60)


def test_records_end_with_their_time(replicas: tuple[RecordStore, RecordStore]) -> None:
    first, second = replicas
    first.put("short", b"one", 0.05)
    first.put("taken", b"one", 60)
    second.take("taken", 0.05)
    time.sleep(0.1)
    assert second.get("short") is None and second.scan("") == {}
    assert second.take("short", 60) is None
    assert first.put("taken", b"new", 60) and second.get("taken") == b"new"


def test_expired_records_leave_the_file(tmp_path: Path) -> None:
    now, path = 1000.0, tmp_path / "records.sqlite"
    store = SQLiteStore(path, clock=lambda: now)
    store.put("a", b"What is the capital of France?", 5)
    now += 60
    store.put("b", b"two", 5)
    store.close()
    assert b"capital of France" not in path.read_bytes()


def test_a_store_that_is_gone_is_reported_as_unavailable(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "records.sqlite")
    store.close()
    with pytest.raises(StoreUnavailable):
        store.get("a")
    with pytest.raises(StoreUnavailable):
        store.take("a", 1)


def test_a_location_that_cannot_be_used_is_one_clear_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="cannot use the file"):
        open_store(str(tmp_path / "file" / "records.sqlite"))
    pytest.importorskip("redis", reason='redis is not installed: pip install -e ".[cluster]"')
    with pytest.raises(OSError, match="check --records"):
        open_store("redis://127.0.0.1:1/0")
