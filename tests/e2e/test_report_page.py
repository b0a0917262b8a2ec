"""`rejoinder report --page`: the page in Chromium against a server with fake models."""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from lab.report import realtime_client
from lab.report.chromium import open_page
from lab.report.corpus import Overlap, SpokenTurn, bounds_ms
from lab.report.page_client import connect_page
from lab.report.realtime_client import connect_realtime, speak_turns
from lab.simulator.errors import ServerUnavailable
from tests.fakes import FakeLanguageModel, LoudnessDetector
from tests.real_time import retried_under_load
from tests.server.live_server import serving
from voice import session
from voice.audio.codec import OUTPUT_RATE, to_pcm16

pytestmark = pytest.mark.real_time

MAX_EXTRA_MS = 250
"""How much longer a turn may take through the page than over a bare connection: the audio buffers of the browser, and
what else the machine has to do."""


@pytest.fixture(autouse=True)
def _detect_speech_by_loudness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)
    monkeypatch.setattr(realtime_client, "SILENCE_S", 0.3)
    monkeypatch.setattr(realtime_client, "LISTEN_S", 1.0)


def spoken_turns(count: int) -> list[SpokenTurn]:
    audio = np.full(OUTPUT_RATE * 4 // 5, 0.5, np.float32)
    return [SpokenTurn(f"tone-{n}", "tone", "a tone", audio, *bounds_ms(audio)) for n in range(count)]


@retried_under_load(attempts=3)
async def test_turns_through_the_page_are_answered_about_as_soon_as_over_a_bare_connection(chromium: str) -> None:
    with serving() as address:
        url = f"ws://{address}/v1/realtime"
        bare = await speak_turns(partial(connect_realtime, url), spoken_turns(2))
        page = await speak_turns(partial(connect_page, url, browser=chromium), spoken_turns(2))
    for turn in page:
        assert not (turn.cut_off or turn.missed or turn.broken_off or turn.unasked)
        assert turn.response_text.strip() == "The capital of France is Paris." and turn.stages_ms
    fastest_bare, fastest_page = (min(turn.latency_ms or 1e9 for turn in turns) for turns in (bare, page))
    assert abs(fastest_page - fastest_bare) < MAX_EXTRA_MS


@retried_under_load(attempts=3)
async def test_speaking_over_the_page_stops_it_and_the_next_response_is_another_one(
    chromium: str,
) -> None:
    words = [f" word{n}" for n in range(40)]
    (turn,) = spoken_turns(1)
    overlap = Overlap("over it", turn.audio, turn.speech_start_ms, turn.speech_end_ms, 500.0, True)
    with serving(new_language_model=partial(FakeLanguageModel, words)) as address:
        connect = partial(connect_page, f"ws://{address}/v1/realtime", browser=chromium)
        (measurement,) = await speak_turns(connect, [replace(turn, overlap=overlap)])
    assert measurement.barge_in_stop_ms is not None and 0 < measurement.barge_in_stop_ms < turn.speech_end_ms


async def test_what_the_page_says_about_a_server_that_rejects_it_is_reported(chromium: str) -> None:
    with serving(api_keys=frozenset({"secret"})) as address:
        with pytest.raises(ServerUnavailable, match="API key"):
            async with connect_page(f"ws://{address}/v1/realtime", browser=chromium):
                pass
        async with connect_page(f"ws://{address}/v1/realtime", "secret", chromium):
            pass


COUNT_FRAMES = """() => {
  const request = window.requestAnimationFrame;
  window.framesDrawn = 0;
  window.requestAnimationFrame = (draw) => { window.framesDrawn++; return request(draw); };
}"""


async def test_the_page_draws_nothing_in_silence_and_few_frames_while_the_user_speaks(chromium: str) -> None:
    seconds = 2
    times = np.arange(seconds * OUTPUT_RATE) / OUTPUT_RATE
    audio = (0.5 * np.sin(2 * np.pi * 220 * times) * np.sin(2 * np.pi * 3 * times)).astype(np.float32)
    clip = {"id": 0, "at": None, "pcm": base64.b64encode(to_pcm16(audio)).decode("ascii")}
    with serving() as address:
        async with open_page(f"http://{address}/", lambda reports: None, browser=chromium) as page:
            await page.locator("#phase[data-phase=listening]").wait_for()
            await page.evaluate(COUNT_FRAMES)
            await asyncio.sleep(1)
            assert await page.evaluate("framesDrawn") == 0
            await page.evaluate("(clip) => rejoinderReport.play(clip)", clip)
            await asyncio.sleep(seconds)
            assert 3 <= await page.evaluate("framesDrawn") <= 9 * seconds
            assert await page.evaluate("document.getElementById('level').style.transform")
