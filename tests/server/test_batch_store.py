"""Files and batches on the disk: who sees them, how much there may be, and what is left after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from server import batch_store
from server.batch_store import BatchStore, BatchUsage, StorageFull
from server.budgets import Budget

LINES = [b'{"n": 1}\n', b"\n", b'{"n": 2}\n', b'{"n": 3}']


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def content(store: BatchStore, file: str) -> bytes:
    return b"".join(text for _, text in store.lines(file, 0, 1000))


def test_a_file_is_given_back_as_it_was_and_to_its_owner_only(tmp_path: Path) -> None:
    store = BatchStore(tmp_path / "batches.sqlite")
    file = store.add_file("alice", "requests.jsonl", "batch", LINES)
    assert file.bytes == len(b"".join(LINES)) and content(store, file.id) == b"".join(LINES)
    assert store.file(file.id, "alice") == file and store.file(file.id, "bob") is None
    assert store.files("bob", None, "", 10, newest_first=True) == []
    assert store.delete_file(file) == "" and store.file(file.id, "alice") is None
    assert b'{"n": 2}' not in b"".join(path.read_bytes() for path in tmp_path.iterdir())


def test_lists_have_pages() -> None:
    store, clock = BatchStore(clock=(clock := Clock())), clock
    files = []
    for n in range(5):
        clock.now += 1
        files.append(store.add_file("alice", f"{n}.jsonl", "batch", [b"x"]))
    newest = store.files("alice", "batch", "", 2, newest_first=True)
    assert [file.filename for file in newest] == ["4.jsonl", "3.jsonl"]
    older = store.files("alice", None, newest[-1].id, 10, newest_first=True)
    assert [file.filename for file in older] == ["2.jsonl", "1.jsonl", "0.jsonl"]
    assert store.files("alice", "batch_output", "", 10, newest_first=True) == []
    assert store.files("alice", None, "unknown", 10, newest_first=True) == []


def test_what_does_not_fit_is_refused_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    store = BatchStore(budget=Budget(10_000, 3600.0, 15_000))
    store.add_file("alice", "a", "batch", [b"x" * 9000])
    with pytest.raises(StorageFull, match="this key's files"):
        store.add_file("alice", "b", "batch", [b"x" * 2000])
    store.add_file("bob", "c", "batch", [b"x" * 5000])
    with pytest.raises(StorageFull, match="the server's storage"):
        store.add_file("bob", "d", "batch", [b"x" * 2000])
    monkeypatch.setattr(batch_store, "MAX_REQUESTS", 3)
    with pytest.raises(ValueError, match="more than 3 lines"):
        store.add_file("carol", "e", "batch", [b"\n"] * 4)
    assert [len(store.files(owner, None, "", 9, newest_first=True)) for owner in ("alice", "bob", "carol")] == [1, 1, 0]


def test_answers_survive_a_crash_and_only_the_others_are_left(tmp_path: Path) -> None:
    clock, path = Clock(), tmp_path / "batches.sqlite"
    store = BatchStore(path, clock)
    file = store.add_file("alice", "requests.jsonl", "batch", LINES)
    store.add_batch("alice", "/v1/decide", file.id, {"job": "7"}, None)
    (batch,) = store.claim("first", 10, ["alice"])
    store.change(batch, "in_progress", 3)
    assert [number for number, _ in store.unanswered(batch, 0, 10)] == [1, 3, 4]
    store.record(batch, 3, b"two\n", BatchUsage(5, 2, 1))
    store.record(batch, 3, b"again\n", BatchUsage(5, 2, 1), failed=True)
    after = BatchStore(path, clock)  # the process was killed
    assert after.claim("second", 10, ["alice"]) == [], "it may still be at work"
    clock.now += 11
    assert after.claim("second", 10, ["bob"]) == []
    (batch,) = after.claim("second", 10, ["alice"])
    assert [number for number, _ in after.unanswered(batch, 0, 10)] == [1, 4]
    assert store.claim("first", 10, ["alice"]) == []
    after.record(batch, 1, b"one\n", BatchUsage(5, 0, 1))
    after.record(batch, 4, b"wrong\n", BatchUsage(), failed=True)
    assert after.file(batch.output_file, "alice") is None, "it is not complete"
    done = after.change(batch, "completed")
    body = done.body(*after.counts(done))
    assert body["request_counts"] == {"total": 3, "completed": 2, "failed": 1}
    assert body["usage"]["total_tokens"] == 12 and body["metadata"] == {"job": "7"}
    assert (
        content(after, body["output_file_id"]) == b"one\ntwo\n" and content(after, body["error_file_id"]) == b"wrong\n"
    )
    assert after.change(done, "cancelling").status == "completed"


def test_what_has_expired_is_deleted_but_not_what_a_batch_still_needs() -> None:
    clock = Clock()
    store = BatchStore(clock=clock)
    needed, other = (store.add_file("alice", name, "batch", LINES, 3600) for name in ("needed", "other"))
    batch = store.add_batch("alice", "/v1/decide", needed.id, None, None)
    assert store.delete_file(needed) == batch.id
    clock.now += 3601
    store.purge()
    assert content(store, needed.id) and not content(store, other.id)
    store.change(batch, "cancelled")
    store.purge()
    assert not content(store, needed.id)
    clock.now += 31 * 86_400
    store.purge()
    assert store.owners() == []


def test_results_are_kept_for_so_long_from_the_end_of_their_batch() -> None:
    clock = Clock()
    store = BatchStore(clock=clock)
    file = store.add_file("alice", "requests.jsonl", "batch", LINES)
    batch = store.add_batch("alice", "/v1/decide", file.id, None, 3600)
    store.record(batch, 1, b"one\n", BatchUsage())
    store.record(batch, 3, b"wrong\n", BatchUsage(), failed=True)
    clock.now += 7200
    store.change(batch, "completed")
    store.purge()
    for name in (batch.output_file, batch.error_file):
        found = store.file(name, "alice")
        assert found is not None and (found.created_at, found.expires_at) == (clock.now, clock.now + 3600)
    clock.now += 3600
    store.purge()
    assert store.file(batch.output_file, "alice") is None and not content(store, batch.error_file)


def test_a_key_has_so_many_batches_at_a_time_and_nothing_after_it_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_store, "MAX_OPEN_BATCHES", 2)
    store = BatchStore()
    file = store.add_file("alice", "requests.jsonl", "batch", LINES)
    batch, _ = (store.add_batch("alice", "/v1/decide", file.id, None, None) for _ in range(2))
    with pytest.raises(StorageFull, match="are not finished"):
        store.add_batch("alice", "/v1/decide", file.id, None, None)
    store.forget("alice")
    assert store.owners() == [] and store.claim("runner", 10, ["alice"]) == []
    store.record(batch, 1, b"late\n", BatchUsage())
    assert store.lines(batch.output_file, 0, 9) == [] and store.change(batch, "completed").id == batch.id


def test_the_log_is_cleared_after_deletions_and_again_until_nobody_else_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleared = list[bool]()
    outcomes = iter([True, False, True])

    def clear(file: object) -> bool:
        cleared.append(next(outcomes))
        return cleared[-1]

    monkeypatch.setattr(batch_store, "forget_deleted", clear)
    store = BatchStore(tmp_path / "batches.sqlite")
    store.purge()  # an earlier process may have ended before it did so
    store.purge()
    assert cleared == [True]
    store.delete_file(store.add_file("alice", "requests.jsonl", "batch", LINES))
    store.purge()
    store.purge()
    assert cleared == [True, False, True]
