"""A Realtime client that speaks turns in real time and notes what comes back, on one clock (`time.monotonic`).

It works with any Realtime server; `rejoinder.turn` events are asked for and done without where they are unknown.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI

from server.report.corpus import SpokenTurn
from server.report.measure import Measurement, Reply, Sighting, measure
from server.report.microphone import Microphone
from server.report.player import Player
from voice.audio import SPEAKING_RATE, BadAudio, Samples, from_pcm16, to_pcm16

PATIENCE_S = 15.0
"""A turn without an audible answer for this long is missed."""

UNASKED_S = 3.0
"""How long an answer is waited for where none should come."""

LISTEN_S = 1.5
"""How much of an answer is listened to; long ones are cut here, between turns, which nobody's figures see."""

OVER_S = 6.0
"""An answer that has not stopped so long after an interruption will not; it is cut."""

AFTER_BACKCHANNEL_S = 3.0
"""A paused answer has resumed by then, or it will not."""

QUIET_S = 0.8
"""Silence between an answer and the next turn."""

_SETTLE_S = 8.0
"""The longest that a server is waited for to fall silent."""

_OWED_S = 5.0
"""How long an answer is waited for that nobody measures, to words over an answer or behind a cut-off. Left alone, it
would sound into the next turn and count as a cut-off there."""

_LEAD_S = 1.0
"""A background is heard this long before the turn in it."""

_OPEN_S = 20.0

TURNS_PER_CONNECTION = 8
"""Conversations stay this short, so that the first turn of a report is like its last."""

Report = Callable[[Measurement], None]


class NoServer(Exception):
    """The server cannot be measured; the message says why."""


async def speak(
    connected: Callable[[], AbstractAsyncContextManager[Call]],
    turns: Sequence[SpokenTurn],
    *,
    each: int = TURNS_PER_CONNECTION,
    report: Report = lambda turn: None,
) -> list[Measurement]:
    """Speak all turns, some on each connection.

    Args:
        connected: opens a connection: `calling`, with an address.
        each: turns on a connection.
        report: called after each turn.

    Raises:
        NoServer: it does not answer, refuses, or goes away.
    """
    measured: list[Measurement] = []
    while len(measured) < len(turns):
        async with connected() as call:
            for turn in turns[len(measured) :][:each]:
                measured.append(measure(await call.take(turn)))
                report(measured[-1])
                if measured[-1].missed or measured[-1].cut_off:
                    break  # what the server still makes of it must not reach into the next turn
    return measured


@asynccontextmanager
async def calling(url: str, api_key: str | None = None, eagerness: str | None = None) -> AsyncIterator[Call]:
    """A connection with its microphone open.

    Args:
        eagerness: how soon the server is to take a turn for over, in the protocol's words.

    Raises:
        NoServer: it cannot be reached, or refuses.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        async with connect(
            url, additional_headers=headers, max_size=None, compression=None, open_timeout=_OPEN_S
        ) as socket:
            call = Call(socket, eagerness=eagerness)
            try:
                await call.open()
                yield call
            finally:
                await call.close()
    except InvalidURI:
        raise NoServer(f"{url} is no websocket address: it should look like ws://127.0.0.1:8000/v1/realtime") from None
    except (OSError, TimeoutError, InvalidHandshake) as error:
        raise NoServer(f"{url} cannot be reached ({error}): is the server running there?") from None
    except ConnectionClosed as error:
        raise NoServer(f"{url} closed the connection ({error})") from None


class Socket(Protocol):
    """What a call needs of a websocket."""

    async def send(self, message: str, /) -> None:
        """Send a text frame. Raises ConnectionClosed."""

    async def recv(self) -> str | bytes:
        """The next frame. Raises ConnectionClosed."""


class Call:
    """One conversation.

    Args:
        socket: an open websocket, or what sends and receives like one.
        rate: Hz of the sound that is sent.
        eagerness: how soon the server is to take a turn for over; its own default when None.
    """

    def __init__(self, socket: Socket, rate: int = SPEAKING_RATE, eagerness: str | None = None) -> None:
        self._socket = socket
        self._microphone = Microphone(self._speak, rate)
        self._tasks: list[asyncio.Task[None]] = []
        self._news = asyncio.Event()
        self._told: list[str] = []
        self._refused = ""
        detection = {"type": "semantic_vad", "eagerness": eagerness}
        self._session = {"type": "realtime"} | (
            {} if eagerness is None else {"audio": {"input": {"turn_detection": detection}}}
        )
        self._timelines_come = True
        self._player = Player()
        self._replies: dict[str, Reply] = {}
        self._seen: Sighting | None = None
        self._spoke = float("-inf")

    async def open(self) -> None:
        """Agree on the session and open the microphone. Raises NoServer, ConnectionClosed."""
        self._tasks.append(asyncio.create_task(self._read()))
        await self._until(lambda: "session.created" in self._told or self._refused != "", _OPEN_S)
        if "session.created" not in self._told:
            raise NoServer(f"the server began no session: {self._refused or 'it says nothing'}")
        for session in (self._session | {"include": ["rejoinder.turn"]}, self._session):
            self._refused = ""
            await self._send("session.update", session=session)
            await self._until(lambda: "session.updated" in self._told or self._refused != "", _OPEN_S)
            if "session.updated" in self._told:
                break
            self._timelines_come = False
        else:
            raise NoServer(f"the server takes no session: {self._refused or 'it says nothing'}")
        self._tasks.append(asyncio.create_task(self._microphone.run()))
        await asyncio.sleep(QUIET_S)

    async def close(self) -> None:
        """Close the microphone and stop reading."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def take(self, turn: SpokenTurn) -> Sighting:
        """Speak one turn, wait for what comes, and leave the conversation quiet. Raises ConnectionClosed."""
        self._player, self._replies, self._microphone.worst_late_s = Player(), {}, 0.0
        if turn.background is not None:
            self._microphone.surround(turn.background)
            await asyncio.sleep(_LEAD_S)
        first = self._microphone.say(turn.audio)
        seen = Sighting(turn, first + turn.speech_start_ms / 1000, first + turn.speech_end_ms / 1000, self._player)
        self._seen = seen
        await asyncio.sleep(seen.ended - time.monotonic())
        cut_off = bool(self._player.pieces)
        if not cut_off:
            patience = PATIENCE_S if turn.expected == "answer" else UNASKED_S
            await self._until(lambda: self._player.first_audible(seen.ended) is not None, patience)
            await self._listen(turn, seen)
        seen.finished, seen.late_s = time.monotonic(), self._microphone.worst_late_s
        await self._fall_silent()
        seen.replies = list(self._replies.values())
        self._microphone.surround(None)
        self._seen = None
        await asyncio.sleep(QUIET_S)
        return seen

    async def _listen(self, turn: SpokenTurn, seen: Sighting) -> None:
        """Hear the answer for as long as the figures need, and speak over it where the turn says so."""
        audible = self._player.first_audible(seen.ended)
        if audible is None:
            return
        over = turn.over
        if over is None:
            await self._until(lambda: self._over_by(audible + LISTEN_S), LISTEN_S + PATIENCE_S)
            return
        at = audible + (over.after_ms - over.speech_start_ms) / 1000
        await asyncio.sleep(at - 0.1 - time.monotonic())
        began = self._microphone.say(over.audio, at)
        seen.over_began = began + over.speech_start_ms / 1000
        ended = began + over.speech_end_ms / 1000
        await asyncio.sleep(ended - time.monotonic())
        if over.interrupts:
            await self._until(lambda: self._player.end <= time.monotonic(), OVER_S)
        else:
            await asyncio.sleep(AFTER_BACKCHANNEL_S)

    def _over_by(self, moment: float) -> bool:
        """Whether the moment has passed, or the answer was played to its end before."""
        now = time.monotonic()
        done = bool(self._replies) and all(reply.done is not None for reply in self._replies.values())
        return now >= moment or (done and self._player.end <= now)

    async def _fall_silent(self) -> None:
        """End every answer under way, and one that is still owed to the newest words, until it is quiet."""
        if self._owed():
            await self._until(lambda: not self._owed(), _OWED_S)
        quiet_since = time.monotonic()
        deadline = quiet_since + _SETTLE_S
        while (now := time.monotonic()) < deadline and now < quiet_since + QUIET_S:
            open_replies = [reply for reply in self._replies.values() if reply.done is None]
            for reply in open_replies:
                if not reply.ours:
                    reply.ours = True
                    await self._send("response.cancel")
            await self._clear_player()
            if open_replies:
                quiet_since = now
            await self._until(lambda: any(r.done is None and not r.ours for r in self._replies.values()), 0.1)

    def _owed(self) -> bool:
        """Whether the server heard words that it has not begun to answer."""
        return all(reply.begun < self._spoke for reply in self._replies.values())

    async def _clear_player(self) -> None:
        cut = self._player.clear(time.monotonic())
        if cut is not None:
            item_id, heard_ms = cut
            await self._send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=heard_ms)

    async def _speak(self, block: Samples) -> None:
        await self._send("input_audio_buffer.append", audio=base64.b64encode(to_pcm16(block)).decode("ascii"))

    async def _send(self, kind: str, **said: Any) -> None:
        await self._socket.send(json.dumps({"type": kind, **said}))

    async def _until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait until something holds; looked at again with every event and, for what the clock alone changes, every
        20 ms. Raises ConnectionClosed once the server is gone."""
        deadline = time.monotonic() + seconds
        while not holds():
            if self._tasks[0].done():
                await self._tasks[0]
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), min(left, 0.02))
        return True

    async def _read(self) -> None:
        while True:
            frame = await self._socket.recv()
            at = time.monotonic()
            try:
                event = json.loads(frame)
            except ValueError:
                continue  # no event of the protocol
            if isinstance(event, dict):
                await self._note(at, event)
            self._news.set()

    async def _note(self, at: float, event: dict[str, Any]) -> None:
        seen, kind = self._seen, str(event.get("type", ""))
        match kind:
            case "session.created" | "session.updated":
                self._told.append(kind)
            case "error":
                self._refused = str(event.get("error", {}).get("message", "an error without a message"))
            case "input_audio_buffer.speech_started":
                self._spoke = at
                await self._clear_player()
            case "input_audio_buffer.speech_stopped" | "input_audio_buffer.committed" if seen:
                seen.committed.append(at)
            case "conversation.item.input_audio_transcription.completed" if seen and seen.over_began is None:
                seen.heard = f"{seen.heard} {event.get('transcript', '')}".strip()
            case "response.created":
                response_id = str(event["response"]["id"])
                self._replies[response_id] = Reply(response_id, at)
            case "response.done":
                self._done(at, event["response"])
            case "response.output_audio.delta" | "response.audio.delta":
                self._hear(at, event)
            case "response.output_audio_transcript.delta" | "response.audio_transcript.delta" if seen:
                said = str(event.get("delta", ""))
                if seen.over_began is None:
                    seen.answer += said
                if reply := self._replies.get(str(event.get("response_id"))):
                    reply.text += said
            case "rejoinder.turn" if seen:
                seen.timelines[str(event.get("response_id"))] = event

    def _done(self, at: float, response: dict[str, Any]) -> None:
        reply = self._replies.get(str(response["id"]))
        if reply is not None:
            reply.done, reply.status = at, str(response.get("status", ""))

    def _hear(self, at: float, event: dict[str, Any]) -> None:
        try:
            samples = from_pcm16(base64.b64decode(event["delta"]))
        except (binascii.Error, BadAudio):
            return  # nothing that could be played
        response_id = str(event.get("response_id"))
        if self._seen is not None and response_id in self._replies:
            self._player.push(at, response_id, str(event.get("item_id")), samples)
