"""Keeps account of the threads that run the speech models: what waits for them, how busy they are, what fails."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_MAX_QUEUED = 256
"""Jobs that may wait for one stage. Each conversation has a few at most; more means that the stage has stopped."""

_DEVICE_ERRORS = ("illegal memory access", "device-side assert", "unspecified launch failure", "device is lost")
"""Parts of the messages of errors after which a GPU cannot be used by this process any more."""


class StageOverloaded(RuntimeError):
    """Too much waits for a stage already."""


class StageExecutor(Executor):
    """Runs the jobs of one stage on another executor, and keeps account.

    Args:
        name: of the stage, such as `synthesis`.
        inner: runs the jobs.
        on_device_failure: called in the job's thread when a job failed because its device can no longer be used.
        clock: seconds, monotonic.

    Attributes:
        busy_s: how long jobs have run, all threads together.
        jobs, failures, refused: how many have ended, have failed, and were not taken.
    """

    def __init__(
        self,
        name: str,
        inner: Executor,
        on_device_failure: Callable[[str], None] = lambda reason: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.busy_s, self.jobs, self.failures, self.refused = 0.0, 0, 0, 0
        self._inner, self._on_device_failure, self._clock = inner, on_device_failure, clock
        self._lock = threading.Lock()
        self._queued = set[object]()
        self._started: dict[int, float] = {}

    @property
    def queued(self) -> int:
        """Jobs that wait for a thread."""
        return len(self._queued)

    @property
    def longest_s(self) -> float:
        """How long the oldest job has been running; 0 if none is."""
        with self._lock:
            return self._clock() - min(self._started.values()) if self._started else 0.0

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a job. Raises StageOverloaded."""
        queued = object()
        with self._lock:
            if len(self._queued) >= _MAX_QUEUED:
                self.refused += 1
                raise StageOverloaded(f"too much waits for {self.name}: try again later")
            self._queued.add(queued)

        def job() -> T:
            self._queued.discard(queued)
            return self._run(fn, *args, **kwargs)

        try:
            future = self._inner.submit(job)
        except BaseException:
            self._queued.discard(queued)
            raise
        future.add_done_callback(lambda _: self._queued.discard(queued))  # a job that was cancelled while it waited
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See `Executor`."""
        self._inner.shutdown(wait, cancel_futures=cancel_futures)

    def _run(self, fn: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        key, started = id(threading.current_thread()), self._clock()
        with self._lock:
            self._started[key] = started
        try:
            return fn(*args, **kwargs)
        except Exception as error:
            with self._lock:
                self.failures += 1
            if any(part in str(error) for part in _DEVICE_ERRORS):
                self._on_device_failure(f"the device of {self.name} failed: {error}")
            raise
        finally:
            with self._lock:
                self._started.pop(key, None)
                self.busy_s += self._clock() - started
                self.jobs += 1
