"""The report's client against a small Realtime server whose responses come at set times, on a virtual clock."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection, serve

from lab.report import measure as measure_module
from lab.report import realtime_client as client_module
from lab.report.corpus import Overlap, SpokenTurn, bounds_ms
from lab.report.measure import Measurement, TurnObservation
from lab.report.realtime_client import RealtimeClient, connect_realtime, speak_turns
from lab.simulator import microphone as microphone_module
from lab.simulator.errors import ServerUnavailable
from lab.simulator.microphone import BLOCK_S
from tests.fakes import run_on_virtual_clock
from tests.lab.report.samples import tone
from voice.audio.codec import Samples, from_pcm16, to_pcm16

TOLERANCE_MS = 1000 * BLOCK_S
"""How far a measurement may be off: the server notices speech and silence block by block."""


@pytest.fixture(autouse=True)
def _on_the_event_loops_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
    for module in (client_module, microphone_module):
        monkeypatch.setattr(module, "time", clock)


@pytest.fixture(autouse=True)
def _shorten_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {
        "RESPONSE_TIMEOUT_S": 0.4, "UNEXPECTED_RESPONSE_S": 0.25, "LISTEN_S": 0.15, "INTERRUPTION_TIMEOUT_S": 0.4,
        "AFTER_BACKCHANNEL_S": 0.3, "SILENCE_S": 0.05, "_PENDING_RESPONSE_S": 0.1, "_BACKGROUND_LEAD_S": 0.1,
    }.items():  # fmt: skip
        monkeypatch.setattr(client_module, name, seconds)
    monkeypatch.setattr(measure_module, "_CONTINUED_S", 0.4)


def about(ms: float) -> Any:
    """Equal within the tolerance."""
    return pytest.approx(ms, abs=TOLERANCE_MS)


def spoken_turn(seconds: float = 0.1, overlap: Overlap | None = None, **fields: Any) -> SpokenTurn:
    audio = tone(seconds)
    return SpokenTurn("tone-1", "tone", "a tone", audio, *bounds_ms(audio), overlap=overlap, **fields)


def overlap(interrupts: bool) -> Overlap:
    audio = tone(0.15)
    return Overlap("words over it", audio, *bounds_ms(audio), 200.0, interrupts)


class Wire:
    """One end of a connection in memory: a `realtime_client.Socket`, and what the server uses of a websocket."""

    def __init__(self, inbox: asyncio.Queue[str], outbox: asyncio.Queue[str]) -> None:
        self._inbox, self._outbox = inbox, outbox

    async def send(self, message: str, /) -> None:
        self._outbox.put_nowait(message)

    async def recv(self) -> str:
        return await self._inbox.get()

    async def __aiter__(self) -> AsyncIterator[str]:
        while True:
            yield await self._inbox.get()


@dataclass
class FakeServer:
    """Responds `after_s` after the end of speech, with `lead_s` of silence before a tone.

    Attributes:
        starts_at: responds after this many loud blocks instead, whether or not the user has finished.
        stops_after_s: stops this long after the user starts to speak over the response; never if None.
        extensions: whether it accepts `include`.
        pause_s: pause in the middle of a response.
    """

    after_s: float | None = 0.15
    lead_s: float = 0.0
    length_s: float = 0.3
    starts_at: int | None = None
    stops_after_s: float | None = None
    extensions: bool = True
    pause_s: float = 0.0
    received: list[dict[str, Any]] = field(default_factory=list)
    quiet: int = 0
    loud: int = 0
    response: asyncio.Task[None] | None = None
    stopping: asyncio.Task[None] | None = None

    async def talk(self, socket: Wire | ServerConnection) -> None:
        await self.send(socket, "session.created", session={})
        async for frame in socket:
            event = json.loads(frame)
            if event["type"] == "input_audio_buffer.append":
                self.on_audio(socket, from_pcm16(base64.b64decode(event["audio"])))
                continue
            self.received.append(event)
            if event["type"] == "session.update":
                if "include" in event["session"] and not self.extensions:
                    await self.send(socket, "error", error={"message": "unknown field include"})
                else:
                    await self.send(socket, "session.updated", session={})
            elif event["type"] == "response.cancel" and self.response is not None:
                await self.cancel(socket, "client_cancelled")

    def on_audio(self, socket: Wire | ServerConnection, block: Samples) -> None:
        if np.abs(block).max() > 0.1:
            self.loud, self.quiet = self.loud + 1, 0
            if self.response is not None and self.stopping is None and self.stops_after_s is not None:
                self.stopping = asyncio.create_task(self.stop_response(socket, self.stops_after_s))
        elif self.loud:
            self.quiet += 1
        ended = self.quiet == 1 and self.after_s is not None and self.starts_at is None
        if self.response is None and (ended or (self.starts_at is not None and self.loud == self.starts_at)):
            # The block after the last loud one shows that speech has ended: one block too late.
            wait = 0.0 if self.starts_at is not None or self.after_s is None else self.after_s - BLOCK_S
            self.response = asyncio.create_task(self.respond(socket, wait))

    async def respond(self, socket: Wire | ServerConnection, wait: float) -> None:
        await asyncio.sleep(wait)
        await self.send(socket, "input_audio_buffer.committed", item_id="u")
        await self.send(socket, "response.created", response={"id": "r"})
        audio = tone(self.length_s, self.lead_s)
        half = len(audio) // 2
        for n, part in enumerate((audio[:half], audio[half:])):
            await asyncio.sleep(n * self.pause_s)
            delta = base64.b64encode(to_pcm16(part)).decode()
            await self.send(socket, "response.output_audio.delta", response_id="r", item_id="a", delta=delta)
        await self.send(socket, "response.output_audio_transcript.delta", response_id="r", item_id="a", delta="beep")
        if self.length_s < 1:
            await self.done(socket, "completed", "")
        await asyncio.sleep(10)

    async def stop_response(self, socket: Wire | ServerConnection, wait: float) -> None:
        await asyncio.sleep(wait)
        await self.send(socket, "input_audio_buffer.speech_started", item_id="u2")
        await self.cancel(socket, "turn_detected")

    async def cancel(self, socket: Wire | ServerConnection, reason: str) -> None:
        if self.response is not None:
            self.response.cancel()
        await self.done(socket, "cancelled", reason)

    async def done(self, socket: Wire | ServerConnection, status: str, reason: str) -> None:
        await self.send(socket, "response.done", response={"id": "r", "status": status, "status_details": reason})
        if self.extensions:
            stages = {"end_of_turn": 200.0, "transcription": 50.0}
            await self.send(socket, "rejoinder.turn", response_id="r", latency_ms=250.0, stages_ms=stages, guesses=1)

    async def send(self, socket: Wire | ServerConnection, kind: str, **fields: Any) -> None:
        await socket.send(json.dumps({"type": kind, **fields}))


def measure_turn(fake: FakeServer, turn: SpokenTurn) -> Measurement:
    """Speak one turn to a server, on a virtual clock."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[RealtimeClient]:
        to_server, to_client = asyncio.Queue[str](), asyncio.Queue[str]()
        serving = asyncio.create_task(fake.talk(Wire(to_server, to_client)))
        client = RealtimeClient(Wire(to_client, to_server))
        await client.open()
        yield client
        await client.close()
        for task in (serving, fake.response, fake.stopping):
            if task is not None:
                task.cancel()

    async def run() -> Measurement:
        return (await speak_turns(connect, [turn]))[0]

    return run_on_virtual_clock(run)


@asynccontextmanager
async def listen(talk: Callable[[ServerConnection], Any]) -> AsyncIterator[str]:
    async with serve(talk, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/realtime"


def test_latency_is_from_the_last_spoken_sample_to_the_first_audible_one() -> None:
    immediate = measure_turn(FakeServer(0.2), spoken_turn())
    silent_first = measure_turn(FakeServer(0.1, lead_s=0.12), spoken_turn())
    assert (immediate.latency_ms, immediate.first_audio_ms) == (about(200), about(200))
    assert (silent_first.latency_ms, silent_first.first_audio_ms) == (about(220), about(100))
    assert (immediate.cut_off, immediate.missed, immediate.underruns, immediate.response_text) == (
        False,
        False,
        0,
        "beep",
    )
    assert (immediate.stages_ms["transcription"], immediate.speculations, immediate.server_latency_ms) == (50, 1, 250)


def test_a_response_before_the_end_of_speech_is_a_false_cut_off() -> None:
    turn = measure_turn(FakeServer(starts_at=3), spoken_turn(0.2))
    assert (turn.cut_off, turn.missed, turn.latency_ms) == (True, False, None)


def test_a_turn_without_a_response_is_missed() -> None:
    turn = measure_turn(FakeServer(after_s=None), spoken_turn())
    assert (turn.missed, turn.cut_off, turn.latency_ms) == (True, False, None)


def test_an_unexpected_response_is_counted() -> None:
    answered = measure_turn(FakeServer(after_s=0.1), spoken_turn(expected="none"))
    quiet = measure_turn(FakeServer(after_s=None), spoken_turn(expected="none"))
    assert (answered.unasked, quiet.unasked, quiet.missed) == (True, False, False)
    assert (answered.latency_ms, answered.first_audio_ms) == (None, None)


def test_an_unexpected_response_that_comes_early_is_no_cut_off() -> None:
    turn = measure_turn(FakeServer(starts_at=3), spoken_turn(0.2, expected="none"))
    assert (turn.unasked, turn.cut_off, turn.latency_ms) == (True, False, None)


def test_an_underrun_is_counted() -> None:
    turn = measure_turn(FakeServer(pause_s=0.12, length_s=0.1), spoken_turn())
    assert turn.underruns == 1
    assert turn.underrun_ms == about(70)


def test_barge_in_is_timed_until_the_player_falls_silent() -> None:
    fake = FakeServer(length_s=5.0, stops_after_s=0.1)
    turn = measure_turn(fake, spoken_turn(overlap=overlap(interrupts=True)))
    # The server detects speech once its first block is complete.
    assert turn.barge_in_stop_ms == about(100 + 1000 * BLOCK_S)
    assert turn.barge_in_sent_ms == 0
    truncated = next(event for event in fake.received if event["type"] == "conversation.item.truncate")
    assert truncated["item_id"] == "a"
    assert truncated["audio_end_ms"] == pytest.approx(200 + 120, abs=2 * TOLERANCE_MS)


def test_a_response_that_ignores_an_interruption_stops_when_the_client_gives_up() -> None:
    turn = measure_turn(FakeServer(length_s=5.0), spoken_turn(overlap=overlap(interrupts=True)))
    assert turn.barge_in_stop_ms is not None and turn.barge_in_stop_ms > 400


def test_a_backchannel_should_not_stop_a_response() -> None:
    survived = measure_turn(FakeServer(length_s=5.0), spoken_turn(overlap=overlap(interrupts=False)))
    broken = measure_turn(FakeServer(length_s=5.0, stops_after_s=0.1), spoken_turn(overlap=overlap(interrupts=False)))
    assert (survived.backchannel, broken.backchannel) == ("survived", "broken")
    assert survived.barge_in_stop_ms is None


def test_a_response_that_ended_before_the_interruption_is_not_measured() -> None:
    turn = measure_turn(FakeServer(length_s=0.2), spoken_turn(overlap=overlap(interrupts=True)))
    assert (turn.barge_in_stop_ms, turn.missed) == (None, False)


def test_other_servers_are_measured_without_our_extensions() -> None:
    fake = FakeServer(extensions=False)
    turn = measure_turn(fake, spoken_turn())
    assert turn.latency_ms == about(150)
    assert turn.stages_ms == {}
    assert [event["session"] for event in fake.received if event["type"] == "session.update"][-1] == {
        "type": "realtime"
    }


def test_a_background_plays_before_during_and_after_the_words() -> None:
    blocks: list[Samples] = []

    class Recording(FakeServer):
        def on_audio(self, socket: Wire | ServerConnection, block: Samples) -> None:
            blocks.append(block)
            super().on_audio(socket, block)

    measure_turn(Recording(after_s=0.2), spoken_turn(background=np.full(777, 0.05, np.float32)))
    levels = [round(float(np.abs(block).max()), 2) for block in blocks]
    start = levels.index(0.05)
    assert levels[start + 2] == 0.05 and 0.55 in levels
    assert levels[max(n for n, level in enumerate(levels) if level == 0.55) + 5] == 0.05
    assert levels[-1] == 0


async def test_an_unusable_server_is_reported() -> None:
    with pytest.raises(ServerUnavailable, match="is the server running there"):
        await speak_turns(partial(connect_realtime, "ws://127.0.0.1:9/v1/realtime"), [spoken_turn()])
    with pytest.raises(ServerUnavailable, match="is not a websocket URL"):
        await speak_turns(partial(connect_realtime, "nonsense"), [spoken_turn()])

    async def refuses(socket: ServerConnection) -> None:
        await socket.send(json.dumps({"type": "error", "error": {"message": "this server wants an API key"}}))
        await socket.close()

    async with listen(refuses) as url:
        with pytest.raises(ServerUnavailable, match="this server wants an API key"):
            async with connect_realtime(url):
                pass


async def test_each_speaker_has_connections_of_its_own() -> None:
    spoken: list[list[str]] = []

    class SilentClient:
        async def speak_turn(self, turn: SpokenTurn) -> TurnObservation:
            spoken[-1].append(turn.voice)
            return TurnObservation(turn, 0.0, 1.0)

    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        spoken.append([])
        yield SilentClient()

    await speak_turns(connect, [spoken_turn(expected="none", voice=v) for v in "aaabbba"], turns_per_connection=2)
    assert ["".join(voices) for voices in spoken] == ["aa", "a", "bb", "b", "a"]


async def test_a_turn_over_a_real_websocket_requests_the_eagerness() -> None:
    fake = FakeServer()
    async with listen(fake.talk) as url:
        (turn,) = await speak_turns(partial(connect_realtime, url, None, "high"), [spoken_turn()])
    assert turn.response_text == "beep"
    (update,) = [event for event in fake.received if event["type"] == "session.update"]
    assert update["session"]["audio"]["input"]["turn_detection"] == {"type": "semantic_vad", "eagerness": "high"}


async def test_a_lost_connection_is_reported() -> None:
    async def leaves(socket: ServerConnection) -> None:
        await socket.send(json.dumps({"type": "session.created"}))
        await socket.recv()
        await socket.send(json.dumps({"type": "session.updated"}))
        await socket.recv()
        await socket.close()

    async with listen(leaves) as url:
        with pytest.raises(ServerUnavailable, match="closed the connection"):
            await speak_turns(partial(connect_realtime, url), [spoken_turn()])
