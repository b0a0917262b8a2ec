"""The report's client of the page, with the reports of a page that hears and plays at set times, on a virtual clock."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from lab.report import realtime_client as client_module
from lab.report.corpus import Overlap, SpokenTurn, bounds_ms
from lab.report.measure import Measurement
from lab.report.page_client import PageClient, mark_audible
from lab.report.realtime_client import RealtimeClient, speak_turns
from lab.simulator.errors import ServerUnavailable
from lab.simulator.player import Player
from tests.fakes import run_on_virtual_clock
from tests.lab.report.samples import tone
from voice.audio.codec import OUTPUT_RATE

CLOCK_OFFSET_S = 1_000.0
"""From the client's clock to the page's."""

CHUNK_S, BLOCK_S = 0.5, 0.05
"""Length of a chunk of the response, and of the blocks whose audibility is reported."""

ARRIVES_BEFORE_S = 0.01
"""A chunk arrives this long before the player can play it."""

REPORT_DELAY_S = 0.07
"""Reports arrive this long after what they report."""


@pytest.fixture(autouse=True)
def _on_the_event_loops_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: asyncio.get_running_loop().time())
    monkeypatch.setattr(client_module, "time", clock)


@dataclass
class FakePage:
    """Plays chunks of half a second once the first recording has ended, until it is cancelled or spoken over.

    Attributes:
        after_s: from the end of the recording to the response; negative to answer before, None for never.
        lead_s: silence at the start of the response, a multiple of the block.
        pause_s: between the chunks.
        lost_s: how much time the audio clock loses while the recording is spoken.
        stops_after_s: the response stops this long after the start of the second recording.
        disconnects: the page loses its connection instead of answering.
    """

    after_s: float | None = 0.2
    lead_s: float = 0.0
    chunks: int = 2
    pause_s: float = 0.0
    lost_s: float = 0.0
    stops_after_s: float = 0.15
    disconnects: bool = False
    reports: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    reported: int = 0
    evaluated: list[str] = field(default_factory=list)
    responding: asyncio.Task[None] | None = None
    stopped_at: float = float("inf")

    def report(self, kind: str, at: float, **fields: Any) -> None:
        """Report what happens at a moment on the client's clock."""
        report = {"kind": kind, "at": page_ms(at), **fields}
        self.reported += 1
        in_order = 1e-6 * self.reported  # timers of the same moment fire in any order
        delay = max(0.0, at - now()) + REPORT_DELAY_S + in_order
        asyncio.get_running_loop().call_later(delay, self.reports.put_nowait, json.dumps(report))

    def event(self, kind: str, at: float, **fields: Any) -> None:
        self.report("event", at, event={"type": kind, **fields})

    async def evaluate(self, expression: str, arg: Any = None) -> None:
        self.evaluated.append(expression)
        if "Playback(" in expression:
            self.stop(now())
        if ".cancelResponse(" in expression:
            self.event("response.done", now(), response={"id": "r", "status": "cancelled"})
        if ".play(" not in expression:
            return
        start = now() if arg["at"] is None else arg["at"] / 1000 - CLOCK_OFFSET_S
        is_first = arg["id"] == 0
        end = start + len(base64.b64decode(arg["pcm"])) / 2 / OUTPUT_RATE + (self.lost_s if is_first else 0)
        self.report("started", start, id=arg["id"])
        self.report("ended", end, id=arg["id"], late_ms=1000 * self.lost_s)
        if not is_first:
            stopped_at = start + self.stops_after_s
            self.event("input_audio_buffer.speech_started", stopped_at - 0.03)
            self.stop(stopped_at)
            self.event("response.done", stopped_at, response={"id": "r", "status": "cancelled"})
        elif self.disconnects:
            self.report("lost", end, reason="it went away")
        elif self.after_s is not None:
            self.responding = asyncio.create_task(self.respond(end + self.after_s))

    async def respond(self, at: float) -> None:
        await asyncio.sleep(at - now())
        self.event("response.created", at, response={"id": "r"})
        for n in range(self.chunks):
            start = at + n * (CHUNK_S + self.pause_s)
            await asyncio.sleep(start - now())
            audio = {"response_id": "r", "item_id": "i", "samples": round(CHUNK_S * OUTPUT_RATE)}
            self.report("queued", start, arrived=page_ms(start - ARRIVES_BEFORE_S), **audio)
            for block in range(round(CHUNK_S / BLOCK_S)):
                first = start + block * BLOCK_S
                await asyncio.sleep(first - now())
                if first > self.stopped_at - BLOCK_S / 2:
                    return
                if first > at + self.lead_s - BLOCK_S / 2:
                    self.report("audible", first, until=page_ms(first + BLOCK_S))
        self.event("response.done", now(), response={"id": "r", "status": "completed"})

    def stop(self, at: float) -> None:
        self.stopped_at = at
        self.report("stopped", at)


def now() -> float:
    return asyncio.get_running_loop().time()


def page_ms(moment: float) -> float:
    """A moment on the page's clock."""
    return 1000 * (moment + CLOCK_OFFSET_S)


def spoken_turn(seconds: float = 0.4, **fields: Any) -> SpokenTurn:
    audio = tone(seconds)
    return SpokenTurn("tone-1", "tone", "a tone", audio, *bounds_ms(audio), **fields)


def measure_turn(page: FakePage, turn: SpokenTurn) -> Measurement:
    """Speak one turn through the page, on a virtual clock."""

    @asynccontextmanager
    async def connect() -> AsyncIterator[RealtimeClient]:
        client = PageClient(page, page.reports, CLOCK_OFFSET_S)
        page.event("session.created", now())
        page.event("session.updated", now())
        await client.open()
        try:
            yield client
        finally:
            await client.close()
            if page.responding is not None:
                page.responding.cancel()

    return run_on_virtual_clock(lambda: speak_turns(connect, [turn]))[0]


def test_latency_is_between_moments_of_the_pages_clock_however_late_they_are_reported() -> None:
    turn = measure_turn(FakePage(after_s=0.2, lead_s=0.1), spoken_turn())
    assert turn.latency_ms == pytest.approx(300, abs=1)
    assert turn.first_audio_ms == pytest.approx(190, abs=1)
    assert (turn.cut_off, turn.missed, turn.underruns, turn.late_ms) == (False, False, 0, 0)


def test_the_page_says_when_speech_ended() -> None:
    turn = measure_turn(FakePage(after_s=0.2, lost_s=0.05), spoken_turn())
    assert turn.latency_ms == pytest.approx(200, abs=1)
    assert turn.late_ms == pytest.approx(50)


def test_audio_that_arrives_before_the_last_word_is_a_cut_off() -> None:
    turn = measure_turn(FakePage(after_s=-0.1), spoken_turn())
    assert (turn.cut_off, turn.missed, turn.latency_ms) == (True, False, None)


def test_a_page_that_stays_silent_misses_the_turn() -> None:
    turn = measure_turn(FakePage(after_s=None), spoken_turn())
    assert (turn.cut_off, turn.missed, turn.latency_ms) == (False, True, None)


def test_a_pause_between_queued_chunks_is_an_underrun() -> None:
    turn = measure_turn(FakePage(pause_s=0.12), spoken_turn())
    assert (turn.underruns, turn.underrun_ms) == (1, pytest.approx(120, abs=1))


def test_barge_in_ends_with_the_last_audible_sample_that_the_page_played() -> None:
    words = tone(0.3)
    overlap = Overlap("words over it", words, *bounds_ms(words), 400.0, True)
    turn = measure_turn(FakePage(stops_after_s=0.15), spoken_turn(overlap=overlap))
    assert turn.barge_in_stop_ms == pytest.approx(150, abs=1)


def test_the_page_stops_what_the_client_does_not_listen_to() -> None:
    page = FakePage(chunks=8)
    turn = measure_turn(page, spoken_turn())
    assert page.evaluated[-3:-1] == ["rejoinderReport.cancelResponse()", "rejoinderReport.stopPlayback()"]
    assert (turn.broken_off, turn.underruns) == (False, 0)


def test_a_page_that_loses_its_connection_is_reported() -> None:
    with pytest.raises(ServerUnavailable, match=r"lost its connection \(it went away\)"):
        measure_turn(FakePage(disconnects=True), spoken_turn())


def test_audible_samples_belong_to_the_chunk_that_plays() -> None:
    player = Player()
    for response in ("r", "s"):
        player.push(1.0, response, "i", tone(0.5) * 0)
    mark_audible(player, 0.5, 0.9)  # before the first chunk
    mark_audible(player, 1.1, 1.2)
    mark_audible(player, 1.3, 1.4)
    mark_audible(player, 1.6, 1.7)
    assert (player.first_audible(), player.last_audible("r"), player.first_audible_of("s")) == (1.1, 1.4, 1.6)
