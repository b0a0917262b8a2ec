"""The report's client against a small Realtime server whose answers come when the test says so, in real time."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.server import ServerConnection, serve

from server.report import client as client_module
from server.report import measure as measure_module
from server.report.client import NoServer, calling, speak
from server.report.corpus import Overlap, SpokenTurn, bounds_ms
from server.report.measure import Measurement
from server.report.microphone import BLOCK_S
from voice.audio import SPEAKING_RATE, Samples, from_pcm16, to_pcm16

LATE_MS = 30
"""How far a figure may be off: a block of 20 ms and what a busy machine needs to wake up."""


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in {
        "PATIENCE_S": 0.4, "UNASKED_S": 0.25, "LISTEN_S": 0.15, "OVER_S": 0.4, "AFTER_BACKCHANNEL_S": 0.3,
        "QUIET_S": 0.05, "_OWED_S": 0.1, "_LEAD_S": 0.1,
    }.items():  # fmt: skip
        monkeypatch.setattr(client_module, name, seconds)
    monkeypatch.setattr(measure_module, "_WENT_ON_S", 0.4)


def at(ms: float) -> Any:
    """About so many ms."""
    return pytest.approx(ms, abs=LATE_MS)


def tone(seconds: float, lead: float = 0.0) -> Samples:
    return np.concatenate((np.zeros(round(lead * SPEAKING_RATE)), np.full(round(seconds * SPEAKING_RATE), 0.5))).astype(
        np.float32
    )


def spoken(seconds: float = 0.1, over: Overlap | None = None, **more: Any) -> SpokenTurn:
    audio = tone(seconds)
    return SpokenTurn("tone-1", "tone", "a tone", audio, *bounds_ms(audio), over=over, **more)


def over(interrupts: bool) -> Overlap:
    audio = tone(0.15)
    return Overlap("words over it", audio, *bounds_ms(audio), 200.0, interrupts)


@dataclass
class FakeServer:
    """Answers `after_s` behind the end of what is loud, with `lead_s` of silence before a tone.

    Attributes:
        starts_at: answers when so many loud blocks have come instead, whether the user is done or not.
        stops_after_s: gives way so long after words over the answer begin; never when None.
        extensions: whether it knows `include`.
        pause_s: how long it says nothing in the middle of an answer.
    """

    after_s: float | None = 0.15
    lead_s: float = 0.0
    length_s: float = 0.3
    starts_at: int | None = None
    stops_after_s: float | None = None
    extensions: bool = True
    pause_s: float = 0.0
    got: list[dict[str, Any]] = field(default_factory=list)
    quiet: int = 0
    loud: int = 0
    answer: asyncio.Task[None] | None = None
    stopping: asyncio.Task[None] | None = None

    async def talk(self, socket: ServerConnection) -> None:
        await self.send(socket, "session.created", session={})
        async for frame in socket:
            event = json.loads(frame)
            if event["type"] == "input_audio_buffer.append":
                self.hear(socket, from_pcm16(base64.b64decode(event["audio"])))
                continue
            self.got.append(event)
            if event["type"] == "session.update":
                if "include" in event["session"] and not self.extensions:
                    await self.send(socket, "error", error={"message": "unknown field include"})
                else:
                    await self.send(socket, "session.updated", session={})
            elif event["type"] == "response.cancel" and self.answer is not None:
                await self.cancel(socket, "client_cancelled")

    def hear(self, socket: ServerConnection, block: Samples) -> None:
        if np.abs(block).max() > 0.1:
            self.loud, self.quiet = self.loud + 1, 0
            if self.answer is not None and self.stopping is None and self.stops_after_s is not None:
                self.stopping = asyncio.create_task(self.give_way(socket, self.stops_after_s))
        elif self.loud:
            self.quiet += 1
        ended = self.quiet == 1 and self.after_s is not None and self.starts_at is None
        if self.answer is None and (ended or (self.starts_at is not None and self.loud == self.starts_at)):
            # The block behind the last loud one tells that speech has ended: one block too late.
            wait = 0.0 if self.starts_at is not None or self.after_s is None else self.after_s - BLOCK_S
            self.answer = asyncio.create_task(self.reply(socket, wait))

    async def reply(self, socket: ServerConnection, wait: float) -> None:
        await asyncio.sleep(wait)
        await self.send(socket, "input_audio_buffer.committed", item_id="u")
        await self.send(socket, "response.created", response={"id": "r"})
        sound = tone(self.length_s, self.lead_s)
        half = len(sound) // 2
        for n, part in enumerate((sound[:half], sound[half:])):
            await asyncio.sleep(n * self.pause_s)
            delta = base64.b64encode(to_pcm16(part)).decode()
            await self.send(socket, "response.output_audio.delta", response_id="r", item_id="a", delta=delta)
        await self.send(socket, "response.output_audio_transcript.delta", response_id="r", item_id="a", delta="beep")
        if self.length_s < 1:
            await self.done(socket, "completed", "")
        await asyncio.sleep(10)

    async def give_way(self, socket: ServerConnection, wait: float) -> None:
        await asyncio.sleep(wait)
        await self.send(socket, "input_audio_buffer.speech_started", item_id="u2")
        await self.cancel(socket, "turn_detected")

    async def cancel(self, socket: ServerConnection, reason: str) -> None:
        if self.answer is not None:
            self.answer.cancel()
        await self.done(socket, "cancelled", reason)

    async def done(self, socket: ServerConnection, status: str, reason: str) -> None:
        await self.send(socket, "response.done", response={"id": "r", "status": status, "status_details": reason})
        if self.extensions:
            stages = {"end_of_turn": 200.0, "transcription": 50.0}
            await self.send(socket, "rejoinder.turn", response_id="r", latency_ms=250.0, stages_ms=stages, guesses=1)

    async def send(self, socket: ServerConnection, kind: str, **fields: Any) -> None:
        await socket.send(json.dumps({"type": kind, **fields}))


@asynccontextmanager
async def listening(talk: Callable[[ServerConnection], Any]) -> AsyncIterator[str]:
    async with serve(talk, "127.0.0.1", 0) as server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/realtime"


async def measured(fake: FakeServer, turn: SpokenTurn) -> Measurement:
    async with listening(fake.talk) as url:
        return (await speak(partial(calling, url), [turn]))[0]


async def test_latency_is_from_the_last_spoken_sample_to_the_first_audible_one() -> None:
    at_once, silent_first = await asyncio.gather(
        measured(FakeServer(0.2), spoken()), measured(FakeServer(0.1, lead_s=0.12), spoken())
    )
    assert (at_once.latency_ms, at_once.first_audio_ms) == (at(200), at(200))
    assert (silent_first.latency_ms, silent_first.first_audio_ms) == (at(220), at(100))
    assert (at_once.cut_off, at_once.missed, at_once.underruns, at_once.answer) == (False, False, 0, "beep")
    assert (at_once.stages_ms["transcription"], at_once.guesses, at_once.server_latency_ms) == (50, 1, 250)


async def test_an_answer_that_comes_too_early_is_a_false_cut_off() -> None:
    turn = await measured(FakeServer(starts_at=3), spoken(0.2))
    assert (turn.cut_off, turn.missed, turn.latency_ms) == (True, False, None)


async def test_no_answer_is_a_missed_turn() -> None:
    turn = await measured(FakeServer(after_s=None), spoken())
    assert (turn.missed, turn.cut_off, turn.latency_ms) == (True, False, None)


async def test_an_answer_that_nobody_asked_for_is_noted() -> None:
    answered, quiet = await asyncio.gather(
        measured(FakeServer(after_s=0.1), spoken(expected="none")),
        measured(FakeServer(after_s=None), spoken(expected="none")),
    )
    assert (answered.unasked, quiet.unasked, quiet.missed) == (True, False, False)


async def test_a_player_that_runs_dry_is_counted() -> None:
    turn = await measured(FakeServer(pause_s=0.12, length_s=0.1), spoken())
    assert turn.underruns == 1
    assert turn.underrun_ms == at(70)


async def test_barge_in_is_timed_until_the_player_falls_silent() -> None:
    fake = FakeServer(length_s=5.0, stops_after_s=0.1)
    turn = await measured(fake, spoken(over=over(interrupts=True)))
    # The server knows of a word once its first block is whole.
    assert turn.barge_in_stop_ms == at(100 + 1000 * BLOCK_S)
    assert turn.barge_in_sent_ms == 0
    truncated = next(event for event in fake.got if event["type"] == "conversation.item.truncate")
    assert truncated["item_id"] == "a"
    assert truncated["audio_end_ms"] == pytest.approx(200 + 120, abs=2 * LATE_MS)


async def test_an_answer_that_never_gives_way_is_as_long_as_it_was_heard() -> None:
    turn = await measured(FakeServer(length_s=5.0), spoken(over=over(interrupts=True)))
    assert turn.barge_in_stop_ms is not None and turn.barge_in_stop_ms > 400


async def test_a_backchannel_should_not_break_an_answer() -> None:
    survived, broken = await asyncio.gather(
        measured(FakeServer(length_s=5.0), spoken(over=over(interrupts=False))),
        measured(FakeServer(length_s=5.0, stops_after_s=0.1), spoken(over=over(interrupts=False))),
    )
    assert (survived.backchannel, broken.backchannel) == ("survived", "broken")
    assert survived.barge_in_stop_ms is None


async def test_an_answer_that_ended_before_the_words_over_it_says_nothing() -> None:
    turn = await measured(FakeServer(length_s=0.2), spoken(over=over(interrupts=True)))
    assert (turn.barge_in_stop_ms, turn.missed) == (None, False)


async def test_other_servers_need_not_know_our_events() -> None:
    fake = FakeServer(extensions=False)
    turn = await measured(fake, spoken())
    assert turn.latency_ms == at(150)
    assert turn.stages_ms == {}
    assert [event["session"] for event in fake.got if event["type"] == "session.update"][-1] == {"type": "realtime"}


async def test_a_background_is_there_before_between_and_after_the_words() -> None:
    heard: list[Samples] = []

    class Listening(FakeServer):
        def hear(self, socket: ServerConnection, block: Samples) -> None:
            heard.append(block)
            super().hear(socket, block)

    await measured(Listening(after_s=0.2), spoken(background=np.full(777, 0.05, np.float32)))
    levels = [round(float(np.abs(block).max()), 2) for block in heard]
    start = levels.index(0.05)
    assert levels[start + 2] == 0.05 and 0.55 in levels
    assert levels[max(n for n, level in enumerate(levels) if level == 0.55) + 5] == 0.05
    assert levels[-1] == 0


async def test_what_is_no_server_is_said_in_a_sentence() -> None:
    with pytest.raises(NoServer, match="is the server running there"):
        await speak(partial(calling, "ws://127.0.0.1:9/v1/realtime"), [spoken()])
    with pytest.raises(NoServer, match="is no websocket address"):
        await speak(partial(calling, "nonsense"), [spoken()])

    async def refuses(socket: ServerConnection) -> None:
        await socket.send(json.dumps({"type": "error", "error": {"message": "this server wants an API key"}}))
        await socket.close()

    async with listening(refuses) as url:
        with pytest.raises(NoServer, match="this server wants an API key"):
            async with calling(url):
                pass


async def test_eagerness_is_asked_for() -> None:
    fake = FakeServer()
    async with listening(fake.talk) as url:
        await speak(partial(calling, url, None, "high"), [spoken()])
    (update,) = [event for event in fake.got if event["type"] == "session.update"]
    assert update["session"]["audio"]["input"]["turn_detection"] == {"type": "semantic_vad", "eagerness": "high"}


async def test_a_server_that_goes_away_is_said() -> None:
    async def leaves(socket: ServerConnection) -> None:
        await socket.send(json.dumps({"type": "session.created"}))
        await socket.recv()
        await socket.send(json.dumps({"type": "session.updated"}))
        await socket.recv()
        await socket.close()

    async with listening(leaves) as url:
        with pytest.raises(NoServer, match="closed the connection"):
            await speak(partial(calling, url), [spoken()])
