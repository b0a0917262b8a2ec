"""One call's connection: the socket, the clock and the conversation that `call.py` works with."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Protocol

from agent.background_tasks import BackgroundTasks, cancel, supervised
from server.access.admission import Slot
from server.access.rate import TokenBucket
from server.realtime.conversation import RealtimeConversation
from server.realtime.events import ServerEvent
from server.realtime.session_record import SessionRecord
from server.shared_store import SharedRecords
from server.telephony.announcements import Announcements
from server.telephony.call import Announcement, Call, CalledFunction
from server.telephony.continued_calls import CALL_PARAMETER, ContinuedCalls
from server.telephony.dialect import (
    FRAME_MS,
    BadCall,
    BadMessage,
    CallStarted,
    CarrierEvent,
    Dialect,
    Frame,
    known_caller,
)
from server.telephony.settings import CallSettings
from voice.audio.codec import OUTPUT_RATE, decode
from voice.audio.resampling import resample

_log = logging.getLogger("rejoinder.phone")

START_TIMEOUT_S = 10.0
"""How long a carrier may take to identify the call. Carriers do so in the first message."""

_MAX_UNREAD_FRAMES = 512
"""Frames queued for a carrier that does not read, before the server hangs up: several seconds of audio with marks."""

_MAX_FRAME_BYTES = 1 << 20
"""Larger frames of a carrier are invalid. The largest that any sends, AudioSocket's, has 64 KiB."""

_FRAMES_PER_SECOND, _FRAME_BURST = 500.0, 2000.0
"""Frames that are read. A carrier sends 50 a second and marks; one that sends more is read more slowly."""

_MAX_FINISH_S = 10.0
"""How long a call that is to end may finish its turn."""

_MAX_BAD_MESSAGES = 200
"""Consecutive invalid messages before a call is closed: a few seconds of audio of an unknown stream. A single one,
which a carrier may have added to its protocol since, ends no call."""

_MAX_LOGGED = 8
"""Kinds of invalid messages that are logged."""

NORMAL_CLOSURE, POLICY_VIOLATION, INTERNAL_ERROR, TRY_AGAIN_LATER = 1000, 1008, 1011, 1013
"""Websocket close codes, as registered with IANA."""


class Transport(Protocol):
    """The socket of a call."""

    async def receive(self) -> Frame | None:
        """The next frame; None once the peer has disconnected."""

    async def send(self, frame: Frame) -> None:
        """Send a frame; waits while the peer does not read. Raises OSError once it has disconnected."""

    async def close(self, code: int, reason: str) -> None:
        """Close the connection."""


@dataclass(frozen=True)
class AdmittedCall:
    """What a call gets when a line is free.

    Attributes:
        open_conversation: opens a conversation that sends its events to a function, or continues one from its record.
        continued: where calls are recorded in case their replica dies.
        caller: their number, from the webhook that announced the call; None to believe what the stream says.
    """

    slot: Slot
    open_conversation: Callable[[Callable[[ServerEvent], None], SessionRecord | None], RealtimeConversation]
    continued: ContinuedCalls = field(default_factory=lambda: ContinuedCalls(SharedRecords()))
    caller: str | None = None


class Connection:
    """One call from its first frame to its last.

    Args:
        transport: its socket.
        name: the call's name in the log until the carrier sends one.
        settings: of all calls; the call's own parameters are applied to them.
        announcements: cache that all calls share.
        admitted: the call's slot and conversation; None if the call cannot be taken, and the caller is told so.
    """

    def __init__(
        self,
        transport: Transport,
        name: str,
        settings: CallSettings,
        announcements: Announcements,
        admitted: AdmittedCall | None,
    ) -> None:
        self._transport, self._name, self._settings = transport, name, settings
        self._announcements, self._admitted = announcements, admitted
        self._conversation: RealtimeConversation | None = None
        self._bad_in_a_row, self._logged = 0, set[str]()
        self._loop = asyncio.get_running_loop()
        self._wake, self._has_client_events = asyncio.Event(), asyncio.Event()
        self._outgoing: asyncio.Queue[Frame] = asyncio.Queue(_MAX_UNREAD_FRAMES)
        self._tasks = BackgroundTasks()
        self._feed_lock = asyncio.Lock()

    async def run(self, detect: Callable[[Frame], Dialect | None]) -> None:
        """Carry the call until one side ends it. Any failure is logged in one line.

        Args:
            detect: finds the dialect from the first frames, None while it is undecided. Raises BadCall.
        """
        code, reason = NORMAL_CLOSURE, ""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                dialect, started = await self._start(detect)
        except TimeoutError:
            code, reason = POLICY_VIOLATION, f"no start message came within {START_TIMEOUT_S:.0f} s"
        except BadCall as error:
            code, reason = error.code, str(error)
        except ConnectionError:
            reason = "the carrier disconnected before the call started"
        if reason:
            _log.warning("the call %s was refused: %s", self._name, reason)
            await self._transport.close(code, reason)
            return
        await self._carry(dialect, started)

    async def _start(self, detect: Callable[[Frame], Dialect | None]) -> tuple[Dialect, CallStarted]:
        dialect: Dialect | None = None

        def parse(frame: Frame) -> CarrierEvent | None:
            nonlocal dialect
            dialect = dialect or detect(frame)
            return dialect.parse(frame) if dialect is not None else None

        while (frame := await self._transport.receive()) is not None:
            event = self._parse(frame, parse)
            if dialect is not None and isinstance(event, CallStarted):
                return dialect, event
        raise ConnectionError

    def _parse(self, frame: Frame, parse: Callable[[Frame], CarrierEvent | None]) -> CarrierEvent | None:
        """The event of a frame. An invalid one is ignored, and each kind of them is logged once. Raises BadCall if too
        many come in a row."""
        try:
            if len(frame) > _MAX_FRAME_BYTES:
                raise BadMessage(f"a frame above {_MAX_FRAME_BYTES >> 20} MiB")
            event = parse(frame)
        except BadMessage as error:
            self._bad_in_a_row += 1
            if self._bad_in_a_row > _MAX_BAD_MESSAGES:
                message = f"{self._bad_in_a_row} messages in a row were invalid, the last: {error}"
                raise BadCall(message, POLICY_VIOLATION) from None
            kind = str(error)
            if kind not in self._logged and len(self._logged) < _MAX_LOGGED:
                self._logged.add(kind)
                _log.warning("the call %s continues, ignoring %s", self._name, kind)
            return None
        self._bad_in_a_row = 0
        return event

    async def _carry(self, dialect: Dialect, started: CallStarted) -> None:
        settings, errors = self._settings.with_parameters(started.parameters, self._announcements.voices)
        announced = None if self._admitted is None else self._admitted.caller
        started = replace(started, caller=known_caller(started.caller if announced is None else announced))
        self._name = f"{dialect.name} {started.call_id[:64]!r}"
        _log.info("the call %s begins, %s the caller's number", self._name, "with" if started.caller else "without")
        for message in errors:
            _log.warning("the call %s uses the default for an invalid parameter: %s", self._name, message)
        call_id, restored = started.parameters.get(CALL_PARAMETER, ""), None
        if self._admitted is None:
            settings = replace(settings, greeting="")
        elif call_id and (restored := await self._admitted.continued.take(call_id)) is not None:
            _log.warning("the call %s continues here after its replica has died", self._name)
            settings = replace(settings, greeting=settings.continued_greeting)
        call = Call(dialect, started, settings, self._loop.time())

        def on_server_event(event: ServerEvent) -> None:
            call.on_server_event(event, self._loop.time())
            self._wake.set()

        if self._admitted is not None:
            self._admitted.slot.caller = started.caller
            self._conversation = self._admitted.open_conversation(on_server_event, restored)
            if call_id:
                keep = partial(self._admitted.continued.keep, call_id, self._conversation, self._admitted.slot)
                self._tasks.spawn(supervised(keep))
        else:
            call.hang_up("every line is busy", settings.busy_farewell, self._loop.time())
        code, reason = NORMAL_CLOSURE, ""
        started_at = self._loop.time()
        coroutines = [
            self._read(dialect, call),
            self._keep_time(call),
            self._feed_in_background(call),
            self._write(),
            self._wait_for_dismissal(call),
        ]
        tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            reason = call.end_reason or "the carrier closed the connection"
            await self._flush()
        except BadCall as error:
            code, reason = error.code, str(error)
        except OSError:
            reason = "the connection broke"
        except Exception:
            _log.exception("the call %s failed", self._name)
            code, reason = INTERNAL_ERROR, "the server failed"
        finally:
            await cancel(tasks)
            await self._tasks.close()
            if self._admitted is not None and self._conversation is not None:
                await self._conversation.close()
                if call_id and code != INTERNAL_ERROR:
                    await self._admitted.continued.forget(call_id)  # before the carrier asks what to do next
                self._admitted.slot.count_dropped(self._outgoing.qsize())
            level = logging.INFO if code == NORMAL_CLOSURE else logging.WARNING
            _log.log(level, "the call %s ended after %.0f s: %s", self._name, self._loop.time() - started_at, reason)
            await self._transport.close(code, reason)

    async def _read(self, dialect: Dialect, call: Call) -> None:
        bucket = TokenBucket(_FRAMES_PER_SECOND, _FRAME_BURST, self._loop.time)
        while call.end_reason is None and (frame := await self._transport.receive()) is not None:
            if (wait_s := bucket.take()) > 0:
                await asyncio.sleep(wait_s)
            event = self._parse(frame, dialect.parse)
            if event is not None:
                call.on_carrier_event(event, self._loop.time())
                await self._feed(call)  # here, so that a carrier that sends too fast is slowed down

    async def _keep_time(self, call: Call) -> None:
        """Tick the call every 20 ms and whenever something happened; its playout keeps the absolute clock."""
        while call.end_reason is None:
            self._wake.clear()
            call.tick(self._loop.time())
            while call.announcements:
                self._tasks.spawn(self._announce(call, call.announcements.pop(0)))
            while call.announcement_audio:
                _, _, encoding, rate = call.announcement_format
                samples = decode(call.announcement_audio.pop(0), encoding)
                if self._conversation is not None:
                    self._conversation.announcement_sent(resample(samples, rate, OUTPUT_RATE))
            while call.called_functions:
                self._report_function(call, call.called_functions.pop(0))
            for frame in call.frames:
                try:
                    self._outgoing.put_nowait(frame)
                except asyncio.QueueFull:
                    raise BadCall("the carrier stopped reading", TRY_AGAIN_LATER) from None
            call.frames.clear()
            if call.client_events:
                self._has_client_events.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(FRAME_MS / 1000):
                    await self._wake.wait()

    def _report_function(self, call: Call, called: CalledFunction) -> None:
        _log.info("the call %s called %s", self._name, called.for_log())
        if call.reports_functions:
            call.frames.append(json.dumps({"event": "rejoinder.function", **asdict(called)}))

    async def _feed(self, call: Call) -> None:
        """Pass the call's client events to the conversation, one at a time. Without one, nobody listens."""
        async with self._feed_lock:
            while call.client_events:
                event = call.client_events.pop(0)
                if self._conversation is not None:
                    await self._conversation.handle(event)

    async def _feed_in_background(self, call: Call) -> None:
        """Pass on events that the clock and the conversation itself cause. A busy conversation does not stop the
        clock."""
        while True:
            await self._has_client_events.wait()
            self._has_client_events.clear()
            await self._feed(call)

    async def _announce(self, call: Call, announcement: Announcement) -> None:
        try:
            audio = await self._announcements.audio(announcement.text, *call.announcement_format)
        except Exception:
            _log.exception("an announcement of the call %s could not be synthesized", self._name)
            audio = b""
        call.add_announcement(announcement, audio)
        self._wake.set()

    async def _wait_for_dismissal(self, call: Call) -> None:
        """Say goodbye after the turn in progress, if the call is to end. Runs until it is cancelled."""
        if self._admitted is not None and self._conversation is not None:
            slot = self._admitted.slot
            await slot.dismissed.wait()
            assert slot.dismissal is not None  # set with the event
            if slot.dismissal.after_turn:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._conversation.wait_until_idle(), _MAX_FINISH_S)
            call.hang_up(slot.dismissal.message, self._settings.dismissal_farewell, self._loop.time())
            self._wake.set()
        await asyncio.get_running_loop().create_future()

    async def _write(self) -> None:
        while True:
            await self._transport.send(await self._outgoing.get())
            await asyncio.sleep(0)  # lets the event loop detect a lost connection before the next write

    async def _flush(self) -> None:
        """Send the frames still queued: the command to hang up."""
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1):
                while not self._outgoing.empty():
                    await self._transport.send(self._outgoing.get_nowait())
