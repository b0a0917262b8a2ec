"""The function calls of one response: buffered like the rest of the response, then sent as their arguments grow.

Calls do not wait for the audio of the text before them. What functions return is not handled here: the client adds it
to the history.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from voice import events
from voice.history import FunctionCall, FunctionCallOutput, new_id
from voice.language_model import ToolCallDelta

CANCELLED_OUTPUT = "Cancelled: the response was stopped before the call was complete, so the function did not run."
"""The output of a call that was cancelled while its arguments were generated."""


@dataclass
class _Call:
    """A call as generated so far, and its item once it was sent."""

    name: str
    arguments: str = ""
    done: bool = False
    item: FunctionCall | None = None


class FunctionCalls:
    """The function calls of one response, in the order in which the language model makes them.

    Args:
        emit: called with every event.
        start_item: starts an item of the response.
    """

    def __init__(self, emit: Callable[[events.SessionEvent], None], start_item: Callable[[FunctionCall], None]) -> None:
        self._emit, self._start_item = emit, start_item
        self._calls: dict[int, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    @property
    def has_unsent(self) -> bool:
        """Whether a call is not on the wire yet."""
        return any(call.item is None for call in self._calls.values())

    def add(self, delta: ToolCallDelta) -> None:
        """Take more of a call from the language model."""
        call = self._calls.setdefault(delta.index, _Call(delta.name))
        call.arguments += delta.arguments
        call.done = call.done or delta.done

    def send(self, response_id: str) -> None:
        """Send what has not been sent yet."""
        for call in self._calls.values():
            if call.item is None:
                call.item = FunctionCall(new_id("item"), new_id("call"), call.name)
                self._start_item(call.item)
            if unsent := call.arguments[len(call.item.arguments) :]:
                call.item.arguments = call.arguments
                self._emit(events.FunctionCallArguments(response_id, call.item.id, call.item.call_id, unsent))
            if call.done and not call.item.complete:
                call.item.complete = True
                self._emit(events.FunctionCallDone(response_id, call.item))

    def cancel(self, response_id: str) -> list[FunctionCallOutput]:
        """End the calls that were sent in part; if the response resumes, they are sent again as new ones. Returns their
        outputs, which say so."""
        outputs = []
        for call in self._calls.values():
            if call.item is not None and not call.item.complete:
                self._emit(events.FunctionCallDone(response_id, call.item))
                outputs.append(FunctionCallOutput(new_id("item"), call.item.call_id, CANCELLED_OUTPUT))
                call.item = None
        return outputs
