"""The runner of batches, with handlers of these tests: failures, limits, expiry, revoked keys, restarts."""

from __future__ import annotations

import asyncio
import json
import math
import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from server.access.admission import Admission, Refused
from server.access.keys import ApiKey, ApiKeys, KeyLimits, KeyStore
from server.access.usage import Usage
from server.api_errors import APIError
from server.batch_store import Batch, BatchStore
from server.batches import runner as runner_module
from server.batches.runner import BatchRunner
from server.budgets import JSON_BODY
from server.chat_completions.generation import in_bulk
from server.request_body import json_body
from tests.real_time import HANG_S, wait_until


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_INTERVAL_S", "_PAUSE_S", "_TIDY_INTERVAL_S"):
        monkeypatch.setattr(runner_module, name, 0.01)


class Handler:
    """Answers with the request. Of those that have `fails`, so many attempts fail, or are refused with their `code`.
    From one on, it never answers."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.blocked_from: float = math.inf

    async def __call__(self, request: Request) -> Response:
        body = json.loads(await json_body(request))
        assert in_bulk.get()
        self.asked.append(body["n"])
        if body["n"] >= self.blocked_from:
            await asyncio.Event().wait()
        if self.asked.count(body["n"]) <= body.get("fails", 0):
            raise APIError(503, "not now", code=body["code"]) if "code" in body else RuntimeError("it broke")
        if body.get("bad"):
            raise APIError(400, "this cannot be answered")
        return JSONResponse({"n": body["n"], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})


def new_batch(store: BatchStore, bodies: Iterable[Any], owner: str = "") -> Batch:
    lines = [
        json.dumps({"custom_id": str(n), "method": "POST", "url": "/v1/decide", "body": body}).encode() + b"\n"
        for n, body in enumerate(bodies)
    ]
    file = store.add_file(owner, "requests.jsonl", "batch", lines)
    return store.add_batch(owner, "/v1/decide", file.id, None, None)


@asynccontextmanager
async def running(
    store: BatchStore, handler: Handler, admission: Admission | None = None
) -> AsyncIterator[BatchRunner]:
    runner = BatchRunner(store, admission or Admission(), {"/v1/decide": handler})
    task = asyncio.create_task(runner.run())
    try:
        yield runner
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def finished(store: BatchStore, batch: Batch) -> dict[str, Any]:
    """The batch once it has nothing left to do."""

    def body() -> dict[str, Any]:
        found = store.batch(batch.id, batch.owner)
        assert found is not None
        return found.body(*store.counts(found))

    await wait_until(lambda: body()["status"] not in ("validating", "in_progress", "cancelling"))
    return body()


def answers(store: BatchStore, file: str) -> dict[str, Any]:
    lines = [json.loads(text) for _, text in store.lines(file, 0, 1000)]
    return {line["custom_id"]: line for line in lines}


async def test_every_request_is_answered_and_counted() -> None:
    store, handler, admission = BatchStore(), Handler(), Admission()
    async with running(store, handler, admission):
        batch = new_batch(store, [{"n": n, "bad": n == 3} for n in range(20)])
        body = await finished(store, batch)
    assert body["status"] == "completed"
    assert body["request_counts"] == {"total": 20, "completed": 19, "failed": 1}
    assert body["usage"]["input_tokens"] == 19 * 3 and body["usage"]["output_tokens"] == 19 * 2
    found = answers(store, body["output_file_id"])
    assert [found[str(n)]["response"]["body"]["n"] for n in range(20) if n != 3] == [n for n in range(20) if n != 3]
    wrong = answers(store, body["error_file_id"])["3"]["response"]
    assert wrong["status_code"] == 400 and wrong["body"]["error"]["message"] == "this cannot be answered"
    assert sorted(handler.asked) == list(range(20))


async def test_a_request_that_the_server_fails_at_is_repeated_and_then_reported() -> None:
    store, handler = BatchStore(), Handler()
    async with running(store, handler):
        body = await finished(store, new_batch(store, [{"n": 1, "fails": 2}, {"n": 2, "fails": 99}]))
    assert body["request_counts"] == {"total": 2, "completed": 1, "failed": 1}
    assert answers(store, body["error_file_id"])["1"]["response"]["status_code"] == 500
    assert handler.asked.count(1) == handler.asked.count(2) == 3


async def test_a_request_that_is_refused_is_repeated_until_it_is_taken_unless_a_model_is_missing() -> None:
    store, handler = BatchStore(), Handler()
    async with running(store, handler):
        bodies = [{"n": 1, "fails": 5, "code": "too_many_searches"}, {"n": 2, "fails": 99, "code": "model_not_found"}]
        body = await finished(store, new_batch(store, bodies))
    assert body["request_counts"] == {"total": 2, "completed": 1, "failed": 1}
    assert answers(store, body["error_file_id"])["1"]["response"]["status_code"] == 503
    assert (handler.asked.count(1), handler.asked.count(2)) == (6, 3)


async def test_a_long_line_that_is_not_in_ascii_is_answered() -> None:
    store, handler = BatchStore(), Handler()
    text = "ü" * (JSON_BODY.bytes // 2 - 200)
    line = f'{{"custom_id": "0", "method": "POST", "url": "/v1/decide", "body": {{"n": 0, "text": "{text}"}}}}'.encode()
    file = store.add_file("", "requests.jsonl", "batch", [line])
    async with running(store, handler):
        body = await finished(store, store.add_batch("", "/v1/decide", file.id, None, None))
    assert body["request_counts"] == {"total": 1, "completed": 1, "failed": 0}


async def test_a_line_that_was_never_checked_is_reported() -> None:
    store, handler = BatchStore(), Handler()
    file = store.add_file("", "requests.jsonl", "batch", [b"nonsense"])
    batch = store.add_batch("", "/v1/decide", file.id, None, None)
    store.change(batch, "in_progress", 1)
    async with running(store, handler):
        body = await finished(store, batch)
    assert body["request_counts"] == {"total": 1, "completed": 0, "failed": 1} and not handler.asked


async def test_a_database_that_fails_at_the_end_does_not_hide_that_the_runner_was_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def release(self: BatchStore, runner: str) -> None:
        raise sqlite3.OperationalError("the disk is full")

    monkeypatch.setattr(BatchStore, "release", release)
    task = asyncio.create_task(BatchRunner(BatchStore(), Admission(), {}).run())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_batches_take_turns() -> None:
    store, handler = BatchStore(), Handler()
    batches = [new_batch(store, [{"n": 100 * number + n} for n in range(30)]) for number in range(2)]
    async with running(store, handler):
        for batch in batches:
            await finished(store, batch)
    assert {n // 100 for n in handler.asked[:10]} == {0, 1}


async def test_a_cancelled_batch_keeps_what_was_answered() -> None:
    store, handler = BatchStore(), Handler()
    handler.blocked_from = 10
    async with running(store, handler) as runner:
        batch = new_batch(store, [{"n": n} for n in range(40)])
        await wait_until(lambda: store.counts(batch)[0] == 10)
        store.change(batch, "cancelling")
        runner.change()
        body = await finished(store, batch)
    assert body["status"] == "cancelled" and body["cancelling_at"] and body["cancelled_at"]
    assert len(answers(store, body["output_file_id"])) == body["request_counts"]["completed"] == 10


async def test_another_process_goes_on_where_one_ended(tmp_path: Path) -> None:
    path, first, second = tmp_path / "batches.sqlite", Handler(), Handler()
    first.blocked_from = 10
    store = BatchStore(path)
    batch = new_batch(store, [{"n": n} for n in range(40)])
    async with running(store, first):
        await wait_until(lambda: store.counts(batch)[0] == 10)
    answered = answers(store, batch.output_file)
    assert len(answered) == 10
    store.close()
    store = BatchStore(path)
    async with running(store, second):
        body = await finished(store, batch)
    assert body["request_counts"] == {"total": 40, "completed": 40, "failed": 0}
    assert answers(store, body["output_file_id"]).items() >= answered.items()
    assert not {int(name) for name in answered} & set(second.asked), "what was answered is not repeated"


async def test_what_is_unanswered_after_a_day_is_reported_as_expired() -> None:
    now = [1000.0]
    store, handler = BatchStore(clock=lambda: now[0]), Handler()
    async with running(store, handler) as runner:
        handler.blocked_from = 0
        batch = new_batch(store, [{"n": n} for n in range(12)])
        await wait_until(lambda: len(handler.asked) == runner_module.CONCURRENT)
        now[0] += 86_401.0
        runner.change()
        body = await finished(store, batch)
    assert body["status"] == "expired" and body["output_file_id"] is None
    errors = answers(store, body["error_file_id"])
    assert len(errors) == 12 and {error["error"]["code"] for error in errors.values()} == {"batch_expired"}


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        (b"nonsense", "invalid_json_line", "not valid JSON"),
        (b"\x0c\n", "invalid_json_line", "not valid JSON"),
        (b'{"body": [' + b"0," * 20_000 + b"0]}", "invalid_value", "20,000 values"),
        (b'{"custom_id": "1"}', "missing_required_parameter", "method"),
        (b'{"custom_id": "1", "method": "GET", "url": "/v1/decide", "body": {}}', "invalid_method", "'GET'"),
        (b'{"custom_id": "1", "method": "POST", "url": "/v1/x", "body": {}}', "mismatched_endpoint", "'/v1/x'"),
        (b'{"custom_id": "0", "method": "POST", "url": "/v1/decide", "body": {}}', "duplicate_custom_id", "'0'"),
        (
            b'{"custom_id": "1", "method": "POST", "url": "/v1/decide", "body": {"stream": "true"}}',
            "invalid_value",
            "'stream'",
        ),
    ],
)
async def test_a_batch_with_a_wrong_line_fails_before_anything_is_answered(line: bytes, code: str, words: str) -> None:
    store, handler = BatchStore(), Handler()
    good = b'{"custom_id": "0", "method": "POST", "url": "/v1/decide", "body": {"n": 0}}\n\n'
    file = store.add_file("", "requests.jsonl", "batch", [good, b"\n", line])
    async with running(store, handler):
        body = await finished(store, store.add_batch("", "/v1/decide", file.id, None, None))
    (error,) = body["errors"]["data"]
    assert body["status"] == "failed" and error["code"] == code and error["line"] == 3
    assert words in error["message"] and not handler.asked


async def test_a_file_without_requests_and_one_whose_answers_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    store, handler = BatchStore(), Handler()
    async with running(store, handler):
        empty = store.add_file("", "requests.jsonl", "batch", [b"\n"])
        body = await finished(store, store.add_batch("", "/v1/decide", empty.id, None, None))
        assert body["status"] == "failed" and body["errors"]["data"][0]["code"] == "empty_file"
        batch = new_batch(store, [{"n": n} for n in range(50)])
        store._budget = runner_module_budget(store._used() + 700)
        body = await finished(store, batch)
    assert body["status"] == "failed" and body["errors"]["data"][0]["code"] == "storage_full"
    assert 0 < body["request_counts"]["completed"] < 50 and body["output_file_id"]


def runner_module_budget(size: int) -> Any:
    from server.budgets import Budget

    return Budget(size, 3600.0)


async def test_a_key_that_has_used_its_day_waits_and_a_revoked_one_loses_its_batches(tmp_path: Path) -> None:
    keys = KeyStore(tmp_path / "keys.sqlite")
    keys.add("alice", KeyLimits(tokens_per_day=100))
    refused = list[Refused | None]()

    class Asked(Admission):
        def refused(self, key: ApiKey | None) -> Refused | None:
            refused.append(super().refused(key))
            return refused[-1]

    admission = Asked(keys=ApiKeys(store=keys))
    admission.usage.add("alice", Usage(input_tokens=100))
    store, handler = BatchStore(), Handler()
    async with running(store, handler, admission):
        batch = new_batch(store, [{"n": n} for n in range(4)], "alice")
        await wait_until(lambda: len(refused) > 4)
        assert None not in refused and not admission.refusals, "nobody was turned away"
        assert not handler.asked and store.batch(batch.id, "alice") is not None
        keys.revoke("alice")
        await wait_until(lambda: store.owners() == [])
        assert HANG_S and store.batch(batch.id, "alice") is None


async def test_the_batches_of_a_key_that_only_another_server_knows_wait_for_it(tmp_path: Path) -> None:
    keys, store, handler = KeyStore(tmp_path / "keys.sqlite"), BatchStore(), Handler()
    batch = new_batch(store, [{"n": 1}], "option-12345678")
    async with running(store, handler, Admission(keys=ApiKeys(store=keys))):
        own = new_batch(store, [{"n": 2}])
        await finished(store, own)
        kept = store.batch(batch.id, "option-12345678")
        assert handler.asked == [2] and kept is not None and kept.status == "validating"
