"""A call on its line: the socket, the clock and the conversation around `call.py`."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Protocol

from server.phone.call import Call
from server.phone.prompts import Prompts
from server.phone.rules import CallRules
from server.phone.wire import FRAME_MS, BadCall, BadMessage, Dialect, Frame, Started
from server.protocol import ServerEvent
from server.realtime import RealtimeConversation
from voice.audio import SPEAKING_RATE, decode, resample

_log = logging.getLogger("rejoinder.phone")

START_S = 10.0
"""How long a carrier may take to say what call this is. They say it with the first message."""

_UNREAD_FRAMES = 512
"""Frames that wait for a carrier that does not read, before it is hung up on: several seconds of sound with marks."""

_MOST_FAULTS = 200
"""Messages in a row that make no sense before a call is given up: some seconds of sound of an unknown stream. One now
and then, which a carrier may have invented since, ends no call."""

CLOSED_NORMALLY, CLOSED_FOR_POLICY, FAILED, TRY_LATER = 1000, 1008, 1011, 1013


class Wire(Protocol):
    """The connection that a call is on."""

    async def receive(self) -> Frame | None:
        """The next frame; None once the other side is gone."""

    async def send(self, frame: Frame) -> None:
        """Send a frame; waits while the other side does not read. Raises OSError once it is gone."""

    async def close(self, code: int, reason: str) -> None:
        """Close the connection."""


Begin = Callable[[Callable[[ServerEvent], None]], RealtimeConversation]
"""Opens a conversation that sends its events to a function."""

Feed = Callable[[], Awaitable[None]]


class Faults:
    """What was wrong with a call's messages: each kind is logged once, and too many in a row end the call."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._seen: set[str] = set()
        self._in_a_row = 0

    def none(self) -> None:
        """A message was understood."""
        self._in_a_row = 0

    def note(self, fault: BadMessage) -> None:
        """Raises BadCall when it is enough."""
        self._in_a_row += 1
        if self._in_a_row > _MOST_FAULTS:
            raise BadCall(f"{self._in_a_row} messages made no sense, the last one: {fault}", CLOSED_FOR_POLICY)
        kind = str(fault)
        if kind not in self._seen and len(self._seen) < 8:
            self._seen.add(kind)
            _log.warning("the call %s goes on without %s", self._who, kind)


class Line:
    """One call from its first frame to its last.

    Args:
        wire: its connection.
        who: names it in the log until the carrier does.
        rules: how calls are held, before the call's own parameters.
        prompts: sentences that all calls share.
        begin: opens its conversation.
    """

    def __init__(self, wire: Wire, who: str, rules: CallRules, prompts: Prompts, begin: Begin) -> None:
        self._wire, self._who, self._rules, self._prompts, self._begin = wire, who, rules, prompts, begin
        self._faults = Faults(who)
        self._loop = asyncio.get_running_loop()
        self._news, self._wanted = asyncio.Event(), asyncio.Event()
        self._out: asyncio.Queue[Frame] = asyncio.Queue(_UNREAD_FRAMES)
        self._tasks: set[asyncio.Task[None]] = set()
        self._feeding = asyncio.Lock()

    async def run(self, recognise: Callable[[Frame], Dialect | None]) -> None:
        """Hold the call until one side ends it. Whatever is wrong with it is said in one line of the log.

        Args:
            recognise: tells the dialect from the first frames, None while it cannot. Raises BadCall.
        """
        code, reason = CLOSED_NORMALLY, ""
        try:
            async with asyncio.timeout(START_S):
                dialect, started = await self._start(recognise)
        except TimeoutError:
            code, reason = CLOSED_FOR_POLICY, f"no start came within {START_S:.0f} s"
        except BadCall as error:
            code, reason = error.code, str(error)
        except ConnectionError:
            reason = "it was gone before it started"
        if reason:
            _log.warning("the call %s was refused: %s", self._who, reason)
            await self._wire.close(code, reason)
            return
        await self._hold(dialect, started)

    async def _start(self, recognise: Callable[[Frame], Dialect | None]) -> tuple[Dialect, Started]:
        dialect: Dialect | None = None
        while (frame := await self._wire.receive()) is not None:
            try:
                dialect = dialect or recognise(frame)
                heard = dialect.take(frame) if dialect is not None else None
            except BadMessage as fault:
                self._faults.note(fault)
                continue
            if dialect is not None and isinstance(heard, Started):
                return dialect, heard
        raise ConnectionError

    async def _hold(self, dialect: Dialect, started: Started) -> None:
        rules, faults = self._rules.changed(started.parameters)
        self._who = f"{dialect.name} {started.call_id[:64]!r}"
        _log.info("the call %s begins, from %r", self._who, started.caller[:40] or "somebody")
        for fault in faults:
            _log.warning("the call %s goes on with the usual value: %s", self._who, fault)
        call = Call(dialect, started, rules, self._loop.time())

        def told(event: ServerEvent) -> None:
            call.told(event, self._loop.time())
            self._news.set()

        conversation = self._begin(told)
        code, reason = CLOSED_NORMALLY, ""
        began = self._loop.time()
        feed = partial(self._feed, call, conversation)
        work = [
            self._read(dialect, call, feed),
            self._keep_time(call, conversation),
            self._feed_rest(feed),
            self._write(),
        ]
        tasks = [asyncio.create_task(one) for one in work]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            reason = call.over or "the carrier closed the connection"
            await self._send_rest()
        except BadCall as error:
            code, reason = error.code, str(error)
        except OSError:
            reason = "the connection broke"
        except Exception:
            _log.exception("the call %s failed", self._who)
            code, reason = FAILED, "the server failed"
        finally:
            for task in (*tasks, *self._tasks):
                task.cancel()
            await asyncio.gather(*tasks, *self._tasks, return_exceptions=True)
            await conversation.close()
            level = logging.INFO if code == CLOSED_NORMALLY else logging.WARNING
            _log.log(level, "the call %s ended after %.0f s: %s", self._who, self._loop.time() - began, reason)
            await self._wire.close(code, reason)

    async def _read(self, dialect: Dialect, call: Call, feed: Feed) -> None:
        while call.over is None and (frame := await self._wire.receive()) is not None:
            try:
                heard = dialect.take(frame)
            except BadMessage as fault:
                self._faults.note(fault)
                continue
            self._faults.none()
            if heard is not None:
                call.hear(heard, self._loop.time())
                await feed()  # here, so that a carrier that is too fast is held back

    async def _keep_time(self, call: Call, conversation: RealtimeConversation) -> None:
        """Look at the call every 20 ms and whenever there is news; its playout keeps the absolute clock."""
        while call.over is None:
            self._news.clear()
            call.tick(self._loop.time())
            while call.texts:
                self._render(call, call.texts.pop(0))
            while call.asides:
                _, encoding, rate = call.form
                conversation.session.play_aside(resample(decode(call.asides.pop(0), encoding), rate, SPEAKING_RATE))
            for frame in call.frames:
                try:
                    self._out.put_nowait(frame)
                except asyncio.QueueFull:
                    raise BadCall("the carrier does not read", TRY_LATER) from None
            call.frames.clear()
            if call.events:
                self._wanted.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(FRAME_MS / 1000):
                    await self._news.wait()

    async def _feed(self, call: Call, conversation: RealtimeConversation) -> None:
        """Tell the conversation what the call has for it, one event at a time."""
        async with self._feeding:
            while call.events:
                await conversation.receive(json.dumps(call.events.pop(0)))

    async def _feed_rest(self, feed: Feed) -> None:
        """What comes of the clock and of the conversation itself; a conversation that is busy stops no clock."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await feed()

    def _render(self, call: Call, text: str) -> None:
        task = asyncio.create_task(self._say(call, text))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _say(self, call: Call, text: str) -> None:
        try:
            sound = await self._prompts.sound(text, *call.form)
        except Exception:
            _log.exception("a sentence of the call %s could not be spoken", self._who)
            sound = b""
        call.say(text, sound)
        self._news.set()

    async def _write(self) -> None:
        while True:
            await self._wire.send(await self._out.get())

    async def _send_rest(self) -> None:
        """What the call still had to say: the command to hang up."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                while not self._out.empty():
                    await self._wire.send(self._out.get_nowait())
