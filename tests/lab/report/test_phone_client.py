"""The report's phone client against a real server with fake models."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from lab.report import realtime_client
from lab.report.corpus import SpokenTurn, bounds_ms
from lab.report.phone_client import connect_phone
from lab.report.realtime_client import connect_realtime, speak_turns
from lab.simulator.carriers import CARRIERS
from server.telephony.settings import CallSettings
from tests.fakes import LoudnessDetector
from tests.real_time import retried_under_load
from tests.server.telephony.live_server import MAX_LATENCY_MS, live_server, words
from voice import session


@pytest.fixture(autouse=True)
def _detect_speech_by_loudness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)
    monkeypatch.setattr(realtime_client, "SILENCE_S", 0.2)


@retried_under_load(attempts=3)
async def test_calls_are_measured_with_the_browsers_client() -> None:
    audio, _ = words()
    turn = SpokenTurn("tone-1", "tone", "a tone", audio, *bounds_ms(audio))
    with live_server(call_settings=CallSettings(greeting="")) as server:
        measurements = await speak_turns(
            lambda: connect_phone(server.phone_url, "twilio"), [turn, turn], turns_per_connection=1
        )
    for measurement in measurements:
        assert measurement.latency_ms is not None
        assert measurement.latency_ms < MAX_LATENCY_MS
        assert not (measurement.cut_off or measurement.missed or measurement.broken_off)
        assert measurement.underruns == 0


@retried_under_load(attempts=3)
async def test_the_telephone_is_at_most_150_ms_slower_than_the_browser() -> None:
    """The models take the same time on both sides. All speak at once, so that a busy machine delays all of them. The
    fastest of three turns was delayed least."""
    audio, _ = words()
    turns = [SpokenTurn(f"tone-{n}", "tone", "a tone", audio, *bounds_ms(audio)) for n in range(3)]
    with live_server(call_settings=CallSettings(greeting="")) as server:
        clients = {"browser": partial(connect_realtime, f"ws://{server.address}/v1/realtime")}
        clients |= {name: partial(connect_phone, server.url(name), name) for name in CARRIERS}
        measurements = await asyncio.gather(
            *(speak_turns(connect, turns, turns_per_connection=1) for connect in clients.values())
        )
    latency_ms = {
        name: min(turn.latency_ms for turn in turns if turn.latency_ms is not None)
        for name, turns in zip(clients, measurements, strict=True)
    }
    for name in CARRIERS:
        assert latency_ms[name] - latency_ms["browser"] < 150, latency_ms
