"""A Realtime client that speaks turns in real time and records what comes back, on one clock (`time.monotonic`).

It works with any Realtime server. It requests `rejoinder.turn` events, and does without them on other servers.
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

from agent.background_tasks import cancel
from lab.report.corpus import TURNS_PER_SPEAKER, SpokenTurn
from lab.report.measure import RESPONSE_TIMEOUT_S, Measurement, ResponseObservation, TurnObservation, measure
from lab.simulator.errors import ServerUnavailable, unreachable, without_query
from lab.simulator.microphone import Microphone
from lab.simulator.player import Player
from voice.audio.codec import OUTPUT_RATE, BadAudio, Samples, from_pcm16, to_pcm16

"""A turn without an audible response for this long is missed."""

UNEXPECTED_RESPONSE_S = 3.0
"""How long the client waits for a response where none is expected."""

LISTEN_S = 1.5
"""How long the client listens to a response. It then cancels the rest, between turns, which affects no metric."""

INTERRUPTION_TIMEOUT_S = 6.0
"""A response that has not stopped this long after an interruption will not; the client cancels it."""

_STOPPED_S = 0.5
"""Silence after which a response has stopped, and does not only lack its next chunk."""

AFTER_BACKCHANNEL_S = 3.0
"""A paused response has resumed by then, or will not."""

SILENCE_S = 0.8
"""Silence between a response and the next turn."""

_MAX_SETTLE_S = 8.0
"""The longest that the client waits for the server to fall silent."""

_PENDING_RESPONSE_S = 5.0
"""How long the client waits for a response that it does not measure: to words spoken over a response, or after a
cut-off. Otherwise that response would play into the next turn and count as a cut-off there."""

_BACKGROUND_LEAD_S = 1.0
"""The background starts this long before the turn."""

_CLOCK_RESOLUTION_S = 1e-6
"""Timers may run this much early, so less than this is not waited for."""

_OPEN_TIMEOUT_S = 20.0

TURNS_PER_CONNECTION = TURNS_PER_SPEAKER
"""Conversations stay short, so that the last turn of a report has about as much history as the first."""

OnTurn = Callable[[Measurement], None]


async def speak_turns(
    open_client: Callable[[], AbstractAsyncContextManager[RealtimeClient]],
    turns: Sequence[SpokenTurn],
    *,
    turns_per_connection: int = TURNS_PER_CONNECTION,
    on_turn: OnTurn = lambda turn: None,
) -> list[Measurement]:
    """Speak all turns over a series of connections, each with one speaker.

    Args:
        open_client: opens a connection, like `connect_realtime`.
        on_turn: called after each turn.

    Raises:
        ServerUnavailable: the server does not respond, refuses the connection, or closes it.
    """
    measurements: list[Measurement] = []
    while len(measurements) < len(turns):
        async with open_client() as client:
            speaker = turns[len(measurements)].voice
            for turn in turns[len(measurements) :][:turns_per_connection]:
                if turn.voice != speaker:
                    break
                measurements.append(measure(await client.speak_turn(turn)))
                on_turn(measurements[-1])
                if measurements[-1].missed or measurements[-1].cut_off or measurements[-1].unasked:
                    break  # a late response must not reach into the next turn
    return measurements


@asynccontextmanager
async def connect_realtime(
    url: str, api_key: str | None = None, eagerness: str | None = None
) -> AsyncIterator[RealtimeClient]:
    """A client on a new connection, with its microphone open.

    Args:
        eagerness: how soon the server takes a turn to be over, as `semantic_vad` defines it; None for its default.

    Raises:
        ServerUnavailable: the server cannot be reached, or refuses the connection.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        async with connect(
            url, additional_headers=headers, max_size=None, compression=None, open_timeout=_OPEN_TIMEOUT_S
        ) as socket:
            client = RealtimeClient(socket, eagerness=eagerness)
            try:
                await client.open()
                yield client
            finally:
                await client.close()
    except InvalidURI:
        raise ServerUnavailable(
            f"{without_query(url)} is not a websocket URL: it should look like ws://127.0.0.1:8000/v1/realtime"
        ) from None
    except (OSError, TimeoutError, InvalidHandshake) as error:
        raise unreachable(url, error) from None
    except ConnectionClosed as error:
        raise ServerUnavailable(f"{without_query(url)} closed the connection ({error})") from None


class Socket(Protocol):
    """The part of a websocket that the client uses."""

    async def send(self, message: str, /) -> None:
        """Send a text frame. Raises ConnectionClosed."""

    async def recv(self) -> str | bytes:
        """Receive the next frame. Raises ConnectionClosed."""


class TurnMicrophone(Protocol):
    """What the client speaks into, like `lab.simulator.microphone.Microphone`, which documents the members."""

    max_lateness_s: float

    async def run(self) -> None: ...

    async def play(self, samples: Samples, at: float | None = None) -> float: ...

    async def set_background(self, background: Samples | None) -> None: ...


class RealtimeClient:
    """One conversation.

    Args:
        socket: an open websocket, or an object that sends and receives like one.
        rate: sample rate in Hz of the audio that is sent.
        eagerness: how soon the server takes a turn to be over; None for its default.
        microphone: None for one that sends blocks over the socket.
    """

    def __init__(
        self,
        socket: Socket,
        rate: int = OUTPUT_RATE,
        eagerness: str | None = None,
        microphone: TurnMicrophone | None = None,
    ) -> None:
        self._socket = socket
        self._microphone = microphone or Microphone(self._send_audio, rate)
        self._tasks: list[asyncio.Task[None]] = []
        self._event_arrived = asyncio.Event()
        self._session_events: list[str] = []
        self._error = ""
        detection = {"type": "semantic_vad", "eagerness": eagerness}
        self._session = {"type": "realtime"} | (
            {} if eagerness is None else {"audio": {"input": {"turn_detection": detection}}}
        )
        self._player = Player()
        self._responses: dict[str, ResponseObservation] = {}
        self._observation: TurnObservation | None = None
        self._last_speech_started = float("-inf")

    async def open(self) -> None:
        """Configure the session and open the microphone. Raises ServerUnavailable, ConnectionClosed."""
        self._tasks.append(asyncio.create_task(self._receive()))
        await self._wait_for(lambda: "session.created" in self._session_events or self._error != "", _OPEN_TIMEOUT_S)
        if "session.created" not in self._session_events:
            raise ServerUnavailable(f"the server did not start a session: {self._error or 'it sent no event'}")
        for session in (self._session | {"include": ["rejoinder.turn"]}, self._session):
            self._error = ""
            await self._send("session.update", session=session)
            await self._wait_for(
                lambda: "session.updated" in self._session_events or self._error != "", _OPEN_TIMEOUT_S
            )
            if "session.updated" in self._session_events:
                break
        else:
            raise ServerUnavailable(f"the server did not accept the session: {self._error or 'it sent no event'}")
        self._tasks.append(asyncio.create_task(self._microphone.run()))
        await asyncio.sleep(SILENCE_S)

    async def close(self) -> None:
        """Close the microphone and stop receiving."""
        await cancel(self._tasks)

    async def speak_turn(self, turn: SpokenTurn) -> TurnObservation:
        """Speak one turn, observe the response, and wait until the conversation is silent. Raises ConnectionClosed."""
        self._player, self._responses, self._microphone.max_lateness_s = Player(), {}, 0.0
        if turn.background is not None:
            await self._microphone.set_background(turn.background)
            await asyncio.sleep(_BACKGROUND_LEAD_S)
        start = await self._microphone.play(turn.audio)
        observation = TurnObservation(
            turn, start + turn.speech_start_ms / 1000, start + turn.speech_end_ms / 1000, self._player
        )
        self._observation = observation
        await asyncio.sleep(observation.speech_end - time.monotonic())
        cut_off = any(chunk.arrived < observation.speech_end for chunk in self._player.chunks)
        if not cut_off:
            timeout = RESPONSE_TIMEOUT_S if turn.expected == "answer" else UNEXPECTED_RESPONSE_S
            await self._wait_for(lambda: self._player.first_audible(observation.speech_end) is not None, timeout)
            await self._listen(turn, observation)
        observation.measured_until = time.monotonic()
        observation.max_lateness_s = self._microphone.max_lateness_s
        await self._silence_server()
        observation.responses = list(self._responses.values())
        await self._microphone.set_background(None)
        self._observation = None
        await asyncio.sleep(SILENCE_S)
        return observation

    async def _listen(self, turn: SpokenTurn, observation: TurnObservation) -> None:
        """Listen to the response for as long as the metrics require, and speak over it if the turn says so."""
        audible = self._player.first_audible(observation.speech_end)
        if audible is None:
            return
        overlap = turn.overlap
        if overlap is None:
            await self._wait_for(lambda: self._heard_enough(audible + LISTEN_S), LISTEN_S + RESPONSE_TIMEOUT_S)
            return
        scheduled = audible + (overlap.after_ms - overlap.speech_start_ms) / 1000
        await asyncio.sleep(scheduled - 0.1 - time.monotonic())
        start = await self._microphone.play(overlap.audio, scheduled)
        observation.overlap_start = start + overlap.speech_start_ms / 1000
        overlap_end = start + overlap.speech_end_ms / 1000
        await asyncio.sleep(overlap_end - time.monotonic())
        if overlap.interrupts:
            await self._wait_for(lambda: self._player.end + _STOPPED_S <= time.monotonic(), INTERRUPTION_TIMEOUT_S)
        else:
            await asyncio.sleep(AFTER_BACKCHANNEL_S)

    def _heard_enough(self, moment: float) -> bool:
        """Whether the moment has passed, or every response has been played to its end."""
        now = time.monotonic()
        done = bool(self._responses) and all(response.done_at is not None for response in self._responses.values())
        return now >= moment or (done and self._player.end <= now)

    async def _silence_server(self) -> None:
        """Cancel all responses, including a pending one to the latest speech, until the server is silent."""
        if self._response_pending():
            await self._wait_for(lambda: not self._response_pending(), _PENDING_RESPONSE_S)
        quiet_since = time.monotonic()
        deadline = quiet_since + _MAX_SETTLE_S
        while (now := time.monotonic()) < deadline and now < quiet_since + SILENCE_S:
            unfinished = [response for response in self._responses.values() if response.done_at is None]
            for response in unfinished:
                if not response.cancelled_by_client:
                    response.cancelled_by_client = True
                    await self._send("response.cancel")
            await self._stop_playback(time.monotonic())
            if unfinished:
                quiet_since = now
            await self._wait_for(
                lambda: any(r.done_at is None and not r.cancelled_by_client for r in self._responses.values()), 0.1
            )

    def _response_pending(self) -> bool:
        """Whether the server detected speech for which it has not created a response yet."""
        return all(response.created_at < self._last_speech_started for response in self._responses.values())

    async def _stop_playback(self, at: float) -> None:
        """Stop the player, and tell the server how much was heard: a client does so when the server detects speech."""
        cut = self._player.clear(at)
        if cut is not None:
            item_id, heard_ms = cut
            await self._send("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=heard_ms)

    async def _send_audio(self, block: Samples) -> None:
        await self._send("input_audio_buffer.append", audio=base64.b64encode(to_pcm16(block)).decode("ascii"))

    async def _send(self, kind: str, **fields: Any) -> None:
        await self._socket.send(json.dumps({"type": kind, **fields}))

    async def _wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition holds, which is checked after every event and every 20 ms, for conditions that depend
        only on the clock. Returns whether it holds. Raises ConnectionClosed if the server has gone."""
        deadline = time.monotonic() + seconds
        while not condition():
            if self._tasks[0].done():
                await self._tasks[0]
            remaining = deadline - time.monotonic()
            if remaining < _CLOCK_RESOLUTION_S:
                return False
            self._event_arrived.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._event_arrived.wait(), min(remaining, 0.02))
        return True

    async def _receive(self) -> None:
        while True:
            frame = await self._socket.recv()
            arrived = time.monotonic()
            try:
                event = json.loads(frame)
            except ValueError:
                continue  # not an event of the protocol
            if isinstance(event, dict):
                await self._on_event(arrived, event)
            self._event_arrived.set()

    async def _on_event(self, arrived: float, event: dict[str, Any]) -> None:
        observation, kind = self._observation, str(event.get("type", ""))
        match kind:
            case "session.created" | "session.updated":
                self._session_events.append(kind)
            case "error":
                self._error = str(event.get("error", {}).get("message", "an error without a message"))
            case "input_audio_buffer.speech_started":
                self._last_speech_started = arrived
                await self._stop_playback(arrived)
            case "input_audio_buffer.speech_stopped" | "input_audio_buffer.committed" if observation:
                observation.committed_at.append(arrived)
            case "conversation.item.input_audio_transcription.completed" if (
                observation and observation.overlap_start is None
            ):
                observation.transcript = f"{observation.transcript} {event.get('transcript', '')}".strip()
            case "response.created":
                response_id = str(event["response"]["id"])
                self._responses[response_id] = ResponseObservation(response_id, arrived)
            case "response.done":
                self._on_response_done(arrived, event["response"])
            case "response.output_audio.delta" | "response.audio.delta":
                self._on_audio(arrived, event)
            case "response.output_audio_transcript.delta" | "response.audio_transcript.delta" if observation:
                delta = str(event.get("delta", ""))
                if observation.overlap_start is None:
                    observation.response_text += delta
                if response := self._responses.get(str(event.get("response_id"))):
                    response.text += delta
            case "rejoinder.turn" if observation:
                observation.turn_events[str(event.get("response_id"))] = event

    def _on_response_done(self, arrived: float, payload: dict[str, Any]) -> None:
        response = self._responses.get(str(payload["id"]))
        if response is not None:
            response.done_at, response.status = arrived, str(payload.get("status", ""))

    def _on_audio(self, arrived: float, event: dict[str, Any]) -> None:
        try:
            samples = from_pcm16(base64.b64decode(event["delta"]))
        except (binascii.Error, BadAudio):
            return  # not playable
        response_id = str(event.get("response_id"))
        if self._observation is not None and response_id in self._responses:
            self._player.push(arrived, response_id, str(event.get("item_id")), samples)
