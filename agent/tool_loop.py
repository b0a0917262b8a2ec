"""The tool calls of one written response: how many, for how long, and what it reads of calls that fail, repeat
themselves, take too long or return too much. Spoken responses have their own limits (`voice/response.py`)."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Literal

from agent.background_tasks import cancel
from agent.tool_runs import call_key
from agent.tools.protocol import ToolOutput
from chat.types import Message, ToolCall

MAX_CALLS = 50

MAX_SECONDS = 600.0
"""For all calls, and what is generated between them."""

MAX_REPEATS = 3
"""Calls in a row that can bring nothing new. A model that makes so many makes them forever."""

REPEATED = "This call was already made, and nothing has changed since: its result is above. Go on, or answer."
GIVEN_UP = "Not called again: this call has failed {count} times. Try something else, or say what is missing."
NOT_MADE = "Not called: {reason}. Answer with what you have."
REMOVED = "[removed: the conversation got too long]"

StopReason = Literal["max_tool_calls", "time_limit", "repetition", "cancelled"]

_REASONS: dict[StopReason, str] = {
    "max_tool_calls": "no more calls are allowed",
    "time_limit": "the time is over",
    "repetition": "the same calls were made again and again",
    "cancelled": "the client has stopped the response",
}


class ToolLoop:
    """The calls of one response.

    Args:
        max_calls: including those that were not made because they repeat others.
        max_seconds: from now, after which a call that still runs is stopped.
        clock: in s.

    Attributes:
        calls: by now.
        stopped: why no further calls may be made; None while they may. The language model then answers.
    """

    def __init__(
        self,
        max_calls: int = MAX_CALLS,
        max_seconds: float = MAX_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.calls = 0
        self._max_calls, self._clock, self._ends_at = max_calls, clock, clock() + max_seconds
        self._reason: StopReason | None = None
        self._cancelled = asyncio.Event()
        self._news = 0  # calls that were made for the first time
        self._made: dict[tuple[str, str], int] = {}  # the news there was when a call last succeeded
        self._failures = Counter[tuple[str, str]]()
        self._repeats = 0

    @property
    def stopped(self) -> StopReason | None:
        """See the class."""
        if self._cancelled.is_set():
            return "cancelled"
        if self._reason is None and self._clock() >= self._ends_at:
            self._reason = "time_limit"
        return self._reason

    @property
    def remaining_calls(self) -> int:
        """How many may still be made."""
        return 0 if self.stopped else self._max_calls - self.calls

    def cancel(self) -> None:
        """Stop the response, and the call that runs."""
        self._cancelled.set()

    async def call(self, call: ToolCall, make: Callable[[], Awaitable[ToolOutput]], timeout_s: float) -> ToolOutput:
        """The output of a call. Cancelling the task cancels the call.

        Args:
            make: makes it; what it raises is the output of a call that has failed.
            timeout_s: how long it may take, within the time of the response.
        """
        if (reason := self.stopped) is not None:
            return ToolOutput(NOT_MADE.format(reason=_REASONS[reason]), failed=True)
        self.calls += 1
        key = call_key(call)
        if self._made.get(key) == self._news:
            output = self._repeated(REPEATED)
        elif self._failures[key] >= MAX_REPEATS:
            output = self._repeated(GIVEN_UP.format(count=MAX_REPEATS))
        else:
            output = await self._run(call, make, min(timeout_s, self._ends_at - self._clock()))
            self._failures[key] = self._failures[key] + 1 if output.failed else 0
            if not output.failed:
                self._news += key not in self._made
                self._made[key], self._repeats = self._news, 0
        if self._reason is None and self.calls >= self._max_calls:
            self._reason = "max_tool_calls"
        return output

    def _repeated(self, text: str) -> ToolOutput:
        self._repeats += 1
        if self._repeats >= MAX_REPEATS:
            self._reason = "repetition"
        return ToolOutput(text, failed=True)

    async def _run(self, call: ToolCall, make: Callable[[], Awaitable[ToolOutput]], timeout_s: float) -> ToolOutput:
        running, stop = asyncio.ensure_future(make()), asyncio.ensure_future(self._cancelled.wait())
        try:
            await asyncio.wait((running, stop), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                return running.result()
            reason = _REASONS["cancelled"] if stop.done() else f"it took longer than {timeout_s:.0f} s and was stopped"
            return ToolOutput(f"The call of {call.name} failed: {reason}.", failed=True)
        except Exception as error:
            return ToolOutput(f"The call failed: {error or type(error).__name__}", failed=True)
        finally:
            await cancel((running, stop))


def without_oldest_output(messages: Sequence[Message], start: int) -> list[Message] | None:
    """The conversation without the text of the oldest output that still has one; None if only the newest has.

    Args:
        start: of the messages to look at: what came before them stays.
    """
    outputs = [n for n, message in enumerate(messages) if n >= start and message.role == "tool"]
    for n in outputs[:-1]:
        if messages[n].content != REMOVED:
            return [*messages[:n], replace(messages[n], content=REMOVED), *messages[n + 1 :]]
    return None
