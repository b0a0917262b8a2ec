"""Answers the requests of batches, a few at a time, while nobody else needs the model. What a process leaves undone,
the next one does."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import sqlite3
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.types import Message, Scope

from agent.background_tasks import cancel
from server.access.admission import Admission
from server.access.keys import ApiKey
from server.access.usage import NO_KEY, UsageMeter, current_meter
from server.api_errors import Handler, guarded
from server.batch_store import Batch, BatchStore, BatchUsage, StorageFull
from server.batches.request_lines import MAX_ERRORS, answer_line, check_lines, read_line, usage_of
from server.chat_completions.generation import in_bulk

_log = logging.getLogger("rejoinder.server")

CONCURRENT = 8
"""Requests that are answered at the same time. Their rows share forward passes."""

_INTERVAL_S, _LEASE_S = 1.0, 10.0
"""How often a process looks for what has changed, and how long after its end another one takes its batches over."""

_TIDY_INTERVAL_S = 2.0
"""How often what has expired, and what belonged to revoked keys, is deleted."""

_PAGE = 64
"""Requests that are read at a time."""

_CHECKED_AT_ONCE = 500

_ATTEMPTS = 3
"""A request that the server fails at is repeated: the process may be about to end."""

_PAUSE_S = 5.0
"""How long a batch rests after the server has failed, or while its key has used up its day."""


@dataclass
class _Work:
    """A batch that is being answered.

    Attributes:
        pending: requests that were read, with the numbers of their lines.
        last: the number of the last one that was read.
        all_read: whether there are no others.
        tasks: those that are being answered.
        attempts: of requests that failed, by the number of the line.
        paused_until: on the event loop's clock.
    """

    batch: Batch
    pending: deque[tuple[int, bytes]] = field(default_factory=deque)
    last: int = 0
    all_read: bool = False
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    attempts: dict[int, int] = field(default_factory=dict)
    paused_until: float = 0.0

    @property
    def is_done(self) -> bool:
        """Whether all requests were answered."""
        return self.all_read and not (self.pending or self.tasks)


class BatchRunner:
    """Works on the batches of a store until it is cancelled.

    Args:
        admission: knows the keys, and what they have left of their day.
        handlers: answer a request, by the endpoint.
    """

    def __init__(self, store: BatchStore, admission: Admission, handlers: Mapping[str, Handler]) -> None:
        self._store, self._admission, self._handlers = store, admission, handlers
        self._name = secrets.token_hex(8)
        self._works: dict[str, _Work] = {}
        self._turns: deque[str] = deque()
        self._changed, self._slots = asyncio.Event(), asyncio.Semaphore(CONCURRENT)
        self._tidied_at = float("-inf")

    def change(self) -> None:
        """Something has changed: look at it now."""
        self._changed.set()

    async def run(self) -> None:
        """Answer requests. Runs until cancelled."""
        try:
            while True:
                self._changed.clear()
                await self._look()
                await self._start_requests()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_INTERVAL_S):
                        await self._changed.wait()
        finally:
            await asyncio.gather(*(self._stop(name) for name in tuple(self._works)))
            with suppress(sqlite3.Error):  # then another process waits a little longer
                await self._store.call(self._store.release, self._name)

    async def _look(self) -> None:
        """Learn which batches there are, and end those that have nothing left to do."""
        store, now = self._store, self._store.clock()
        if now >= self._tidied_at + _TIDY_INTERVAL_S:
            self._tidied_at = now
            await self._tidy()
        owners = [NO_KEY, *self._admission.keys.active_names()]
        batches = {batch.id: batch for batch in await store.call(store.claim, self._name, _LEASE_S, owners)}
        for name in self._works.keys() - batches.keys():
            await self._stop(name)
        for batch in batches.values():
            if batch.status == "cancelling":
                await self._finish(batch, "cancelled")
            elif now >= batch.expires_at:
                await self._expire(batch)
            elif batch.status == "validating":
                await self._check(batch)
            elif self._works.setdefault(batch.id, _Work(batch)).is_done:
                if await store.call(store.unanswered, batch, 0, 1):
                    self._works[batch.id] = _Work(batch)  # an answer could not be written
                else:
                    await self._finish(batch, "completed")
        self._turns.extend(name for name in self._works if name not in self._turns)

    async def _tidy(self) -> None:
        """Delete what has expired, and what belongs to keys that were revoked. Data of keys that this
        server does not know are kept: another server of the folder may know them."""
        store = self._store
        await store.call(store.purge)
        for owner in self._admission.keys.revoked().intersection(await store.call(store.owners)):
            for name in [name for name, work in self._works.items() if work.batch.owner == owner]:
                await self._stop(name)
            await store.call(store.forget, owner)

    async def _check(self, batch: Batch) -> None:
        """Check all lines of a batch before the first one is answered."""
        store, seen = self._store, set[str]()
        total, number, errors = 0, 0, list[dict[str, Any]]()
        while lines := await store.call(store.lines, batch.input_file, number, _CHECKED_AT_ONCE):
            number = lines[-1][0]
            count, wrong = await asyncio.to_thread(check_lines, lines, batch.endpoint, seen)
            total, errors = total + count, (errors + wrong)[:MAX_ERRORS]
        if not total:
            errors = [{"code": "empty_file", "message": "the input file has no requests", "param": None, "line": None}]
        if errors:
            await store.call(store.change, batch, "failed", total, errors={"object": "list", "data": errors})
        else:
            await store.call(store.change, batch, "in_progress", total)
            self.change()

    async def _expire(self, batch: Batch) -> None:
        """The time of a batch is over: what is unanswered stays so."""
        store, message = self._store, "the completion window was over before this request was answered"
        await self._stop(batch.id)
        number = 0
        while lines := await store.call(store.unanswered, batch, number, _PAGE):
            number = lines[-1][0]
            for line, text in lines:
                answer = answer_line(_custom_id(text), None, ("batch_expired", message))
                with suppress(StorageFull):
                    await store.call(store.record, batch, line, answer, BatchUsage(), failed=True)
        await store.call(store.change, batch, "expired")

    async def _finish(self, batch: Batch, status: Any, **details: Any) -> None:
        await self._stop(batch.id)
        await self._store.call(self._store.change, batch, status, **details)

    async def _stop(self, name: str) -> None:
        """Answer no more requests of a batch."""
        work = self._works.pop(name, None)
        with suppress(ValueError):
            self._turns.remove(name)
        if work is not None:
            await cancel(work.tasks)

    async def _start_requests(self) -> None:
        """Answer requests of all batches in turn, as many as there is room for."""
        loop = asyncio.get_running_loop()
        waiting = len(self._turns)
        while waiting and not self._slots.locked():
            self._turns.rotate(-1)
            work = self._works[self._turns[-1]]
            if work.paused_until > loop.time() or (found := await self._next(work)) is None:
                waiting -= 1
                continue
            waiting = len(self._turns)
            await self._slots.acquire()
            task = loop.create_task(self._answer(work, *found))
            work.tasks.add(task)
            task.add_done_callback(work.tasks.discard)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._slots.release()
        self.change()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a request of a batch could not be recorded", exc_info=error)

    async def _next(self, work: _Work) -> tuple[int, bytes] | None:
        """The next request of a batch; None if all were begun."""
        while True:
            if work.pending:
                return work.pending.popleft()
            if work.all_read:
                return None
            lines = await self._store.call(self._store.unanswered, work.batch, work.last, _PAGE)
            work.pending.extend(lines)
            work.all_read = not lines
            work.last = lines[-1][0] if lines else work.last

    async def _answer(self, work: _Work, number: int, text: bytes) -> None:
        """Answer one request, and keep the answer."""
        batch, store = work.batch, self._store
        try:
            asked = read_line(text).body
            if batch.endpoint == "/v1/responses":
                asked.setdefault("store", False)  # ten thousand of them would replace what the key has stored
            # No longer than the line: it may be as long as a body may be.
            encoded = json.dumps(asked, ensure_ascii=False, separators=(",", ":")).encode()
            status, body = await self._ask(batch, encoded)
        except Exception as error:
            _log.error("a request of a batch has failed", exc_info=error)
            status, body = 500, {"error": {"message": "the server failed at this request", "type": "server_error"}}
        refused = status in (429, 503) and body["error"]["code"] != "model_not_found"  # which may never be there
        if refused or (status >= 500 and work.attempts.get(number, 1) < _ATTEMPTS):
            work.attempts[number] = work.attempts.get(number, 1) + (not refused)
            work.pending.appendleft((number, text))
            work.paused_until = asyncio.get_running_loop().time() + _PAUSE_S
            return
        answer, failed = answer_line(_custom_id(text), (status, body)), status != 200
        try:
            await store.call(store.record, batch, number, answer, usage_of(body), failed=failed)
        except StorageFull as full:
            problem = {"code": "storage_full", "message": str(full), "param": None, "line": number}
            await store.call(store.change, batch, "failed", errors={"object": "list", "data": [problem]})

    async def _ask(self, batch: Batch, body: bytes) -> tuple[int, Any]:
        """Status and body of the response to a request."""

        def authenticate(request: Request) -> ApiKey | None:
            key = None if batch.owner == NO_KEY else self._admission.keys.named(batch.owner)
            if (refused := self._admission.refused(key)) is not None:
                raise refused
            current_meter.set(UsageMeter(self._admission.usage, batch.owner))
            in_bulk.set(True)
            return key

        async def receive() -> Message:
            if sent:
                await asyncio.Event().wait()  # this client never hangs up
            sent.append(True)
            return {"type": "http.request", "body": body, "more_body": False}

        sent = list[bool]()
        scope: Scope = {
            "type": "http", "method": "POST", "path": batch.endpoint, "headers": [], "query_string": b"",
            "path_params": {},
        }  # fmt: skip
        response = await guarded(authenticate, self._handlers[batch.endpoint])(Request(scope, receive))
        return response.status_code, json.loads(bytes(response.body))


def _custom_id(text: bytes) -> str:
    """Of a line that may not have been checked."""
    try:
        return str(json.loads(text)["custom_id"])
    except (ValueError, KeyError, TypeError):
        return ""
