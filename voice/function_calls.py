"""The function calls of one response: buffered like the rest of the response, then sent as their arguments grow.

Calls do not wait for the audio of the text before them. Calls of the conversation's own tools run (`tool_runs.py`), and
their outputs join the history as soon as they return; what the client's functions return, the client adds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from agent.plan import MakeCall
from agent.planner import Planner
from agent.tool_runs import ToolRuns
from agent.tools.protocol import HOLDING_PHRASE, ToolOutput
from chat.types import Message, Tool, ToolCall, ToolCallDelta
from voice import events
from voice.context import SessionContext
from voice.history import FunctionCall, FunctionCallOutput, History, UnknownItem, new_id
from voice.response_options import ResponseOptions
from voice.turn_metrics import ToolStep

CANCELLED_OUTPUT = "Cancelled: the response was stopped before the call was complete, so the function did not run."
"""The output of a call that was cancelled while its arguments were generated."""

_HOLD_AFTER_S = 0.4
"""A call that takes longer is bridged by its tool's holding phrase."""

_MAX_WAIT_S = 8.0
"""A call that takes longer than this after its holding phrase is no longer waited for: the response ends, and the
result is reported later."""

_STILL_RUNNING = "This is taking a while. I'll tell you when it's done. "


@dataclass
class _Call:
    """A call as generated so far, its item once it was sent, and its output once it runs.

    Attributes:
        own: whether it calls one of the conversation's tools.
        confirmed: whether the user has agreed to it.
        ms: how long it ran, once it has returned.
        answered: whether its output is part of the conversation.
    """

    name: str
    own: bool
    arguments: str = ""
    done: bool = False
    confirmed: bool = False
    call_id: str = field(default_factory=lambda: new_id("call"))
    item: FunctionCall | None = None
    running: asyncio.Event = field(default_factory=asyncio.Event)
    output: asyncio.Task[ToolOutput] | None = None
    ms: float | None = None
    answered: bool = False

    @property
    def as_tool_call(self) -> ToolCall:
        """For the language model."""
        return ToolCall(self.call_id, self.name, self.arguments)

    @property
    def step(self) -> ToolStep:
        """For the turn's metrics."""
        if self.output is None or not self.output.done():
            return ToolStep(self.name, None, "running")
        return ToolStep(self.name, self.ms, "failed" if self.output.result().failed else "returned")


class FunctionCalls:
    """The function calls of one response, in the order in which the language model makes them.

    Args:
        start_item: starts an item of the response.
        runs: runs the conversation's own tools; None if there are none.
    """

    def __init__(
        self, context: SessionContext, start_item: Callable[[FunctionCall], None], runs: ToolRuns | None
    ) -> None:
        self._emit, self._clock, self._start_item, self._runs = context.emit, context.clock, start_item, runs
        self._calls: list[_Call] = []
        self._step: dict[int, _Call] = {}
        self._prompt: Sequence[Message] = ()
        self._history: History | None = None
        self._late = False
        self._tools: Sequence[Tool] = ()

    def __bool__(self) -> bool:
        return bool(self._calls)

    @property
    def has_unsent(self) -> bool:
        """Whether a call is not on the wire yet."""
        return any(call.item is None for call in self._calls)

    @property
    def need_release(self) -> bool:
        """Whether there is something that can only happen once the response is released."""
        return any(not call.own or (call.done and call.output is None) for call in self._calls)

    @property
    def _holding_phrase(self) -> str:
        """What to say while the calls of this step run."""
        running = [call for call in self._step.values() if call.output is None or not call.output.done()]
        traits = self._runs.tools.traits(running[0].name) if self._runs is not None and running else None
        return traits.holding_phrase if traits is not None else HOLDING_PHRASE

    @property
    def steps(self) -> list[ToolStep]:
        """The calls of the conversation's tools so far."""
        return [call.step for call in self._calls if call.own]

    def begin_step(self, prompt: Sequence[Message], tools: Sequence[Tool]) -> None:
        """The response goes on with another step, from `prompt`, and may call these tools."""
        self._step, self._prompt, self._tools = {}, prompt, tools

    def add(self, delta: ToolCallDelta) -> None:
        """Take more of a call from the language model."""
        call = self._step.get(delta.index)
        if call is None:
            call = self._step[delta.index] = self._new_call(delta.name)
        call.arguments += delta.arguments
        call.done = call.done or delta.done
        if call.done and call.own and self._runs is not None and self._runs.may_start_early(call.name):
            self._run(call)

    def read_ahead(self, planner: Planner, options: ResponseOptions, text: str) -> None:
        """Let the language model read the calls of this step while the client runs its functions. The response to their
        outputs then reads only those. Calls of the conversation's own tools need that less: they return at once, or are
        bridged by a phrase.

        Args:
            text: of the step, before its calls.
        """
        if any(not call.own for call in self._step.values()):
            planner.prepare(options.ask([*self._prompt, self._message(text)], first=False))

    def _message(self, text: str = "") -> Message:
        """This step, for the language model."""
        return Message("assistant", text, tuple(call.as_tool_call for call in self._step.values()))

    def add_made(self, made: MakeCall) -> None:
        """Make a call that is planned."""
        call = self._step[len(self._step)] = self._new_call(made.name)
        call.arguments, call.done, call.confirmed = made.arguments, True, made.confirmed
        if not made.confirmed and self._runs is not None and self._runs.may_start_early(call.name):
            self._run(call)

    def _new_call(self, name: str) -> _Call:
        call = _Call(name, self._runs is not None and self._runs.tools.traits(name) is not None)
        self._calls.append(call)
        return call

    def _run(self, call: _Call) -> None:
        if call.output is None and self._runs is not None:
            started = self._clock()
            call.output = self._runs.start(call.as_tool_call, self._prompt, self._tools, confirmed=call.confirmed)
            call.output.add_done_callback(lambda _: self._on_output(call, started))
            call.running.set()

    def _on_output(self, call: _Call, started: float) -> None:
        call.ms = round((self._clock() - started) * 1000, 1)
        self._answer(call)

    def send(self, response_id: str, history: History | None) -> None:
        """Send what has not been sent yet. A call runs once it is complete on the wire.

        Args:
            history: the conversation that outputs join; None if the response is not part of one.
        """
        self._history = history
        for call in self._calls:
            if call.item is None:
                call.item = FunctionCall(new_id("item"), call.call_id, call.name)
                self._start_item(call.item)
            if unsent := call.arguments[len(call.item.arguments) :]:
                call.item.arguments = call.arguments
                self._emit(events.FunctionCallArguments(response_id, call.item.id, call.call_id, unsent))
            if call.done and not call.item.complete:
                call.item.complete = True
                self._emit(events.FunctionCallDone(response_id, call.item))
                if call.own:
                    self._run(call)
                    self._answer(call)

    def _answer(self, call: _Call) -> None:
        """Add the output of a call to the conversation, once it has returned and is on the wire."""
        task, item = call.output, call.item
        if call.answered or task is None or not task.done() or task.cancelled() or self._history is None:
            return
        if item is None or not item.complete:
            return
        call.answered = True
        output = FunctionCallOutput(new_id("item"), call.call_id, task.result().text)
        try:
            previous = self._history.add(output, None if self._late else item.id)
        except UnknownItem:  # the client has deleted the call
            previous = self._history.add(output)
        self._emit(events.ItemAdded(output, previous))
        if self._late and self._runs is not None:
            self._runs.returned_late(call.as_tool_call)

    async def wait(self, released: asyncio.Event, say: Callable[[str], None] | None) -> list[Message] | None:
        """Wait for the calls of this step. Returns them with their outputs, as messages; None if the response ends with
        this step: it has made no call, or one of the client's functions, or one that takes too long, or a form has
        taken the conversation over.

        Args:
            released: set while the response may be heard. No time counts before that.
            say: says something; None if the response is written, which waits for as long as its calls may run.
        """
        if not self._step:
            return None
        outputs = asyncio.ensure_future(self._outputs())
        try:
            if say is not None:
                release = asyncio.ensure_future(released.wait())
                try:
                    await asyncio.wait((outputs, release), return_when=asyncio.FIRST_COMPLETED)
                finally:
                    release.cancel()
                await asyncio.wait((outputs,), timeout=_HOLD_AFTER_S)
                if not outputs.done():
                    say(f"{self._holding_phrase} ")
                    await asyncio.wait((outputs,), timeout=_MAX_WAIT_S)
                if not outputs.done():
                    self.leave()
                    say(_STILL_RUNNING)
                    return None
            return await outputs
        finally:
            outputs.cancel()

    async def _outputs(self) -> list[Message] | None:
        calls = list(self._step.values())
        if not all(call.own and call.done for call in calls):
            return None
        messages = [self._message()]
        for call in calls:
            await call.running.wait()
            assert call.output is not None
            assert self._runs is not None  # the call is of its tools
            if not await self._runs.wait_for(call.output):
                self.leave()
                return None
            messages.append(Message("tool", call.output.result().text, tool_call_id=call.call_id))
        return messages

    def leave(self) -> None:
        """The response ends. What still runs goes on; the session learns of its outputs."""
        self._late = True

    def cancel(self, response_id: str) -> list[FunctionCallOutput]:
        """End the calls that were sent in part; if the response resumes, they are sent again as new ones. Returns their
        outputs, which say so."""
        outputs = []
        for call in self._calls:
            if call.item is not None and not call.item.complete:
                self._emit(events.FunctionCallDone(response_id, call.item))
                outputs.append(FunctionCallOutput(new_id("item"), call.call_id, CANCELLED_OUTPUT))
                call.item, call.call_id = None, new_id("call")
        return outputs
