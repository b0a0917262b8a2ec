"""Built-in tools with the real models: asked for by voice on the page and on the telephone."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
from playwright.async_api import expect

from lab.report.corpus import bounds_ms
from lab.simulator.call import CallPlan, place_call
from lab.simulator.carriers import CARRIERS
from tests.e2e.conftest import synthesize, transcribe, write_recording
from tests.e2e.test_page import page_with, wait_for
from tests.real_time import retried_under_load
from voice.asr import Recognizer
from voice.tts import Voice

TOKYO, TIMER = "What time is it in Tokyo?", "Set a timer for one minute."


def times_in_tokyo() -> list[str]:
    """The time there as it is said, now and a minute ago."""
    now = datetime.now(ZoneInfo("Asia/Tokyo"))
    moments = (now, now - timedelta(minutes=1))
    return [f"{moment.hour % 12 or 12}:{moment.minute:02}" for moment in moments]


@retried_under_load(attempts=3)
async def test_the_page_tells_the_time_in_tokyo_and_sets_a_timer(
    chromium: str, server: str, microphone: Path, voice: Voice
) -> None:
    questions = (synthesize(voice, TOKYO, before=1.0, after=9.0), synthesize(voice, TIMER, after=20.0))
    write_recording(microphone, np.concatenate(questions))
    async with page_with(chromium, microphone, server) as page:
        await page.click("#start")
        await wait_for(page, "response.done", 2)
        calls = page.locator("#talk .call")
        await expect(calls.first).to_contain_text("calculate (")
        await expect(calls.nth(1)).to_contain_text("set timer (")
        answers = page.locator("#talk .assistant p")
        await expect(answers.nth(1)).to_contain_text("1 minute is running")
        spoken = await answers.all_inner_texts()
        await expect(page.locator(".decided").first).to_contain_text("closed form (all words are understood)")
        turns = await wait_for(page, "rejoinder.turn", 2)
    assert any(time in spoken[0] for time in times_in_tokyo()) and "Tokyo" in spoken[0]
    assert [step["name"] for turn in turns for step in turn["tools"]] == ["calculate", "set_timer"]
    assert all(turn["latency_ms"] is not None for turn in turns)


@retried_under_load(attempts=3)
async def test_the_phone_sets_a_timer(server: str, voice: Voice, recognizer: Recognizer) -> None:
    question = synthesize(voice, TIMER, before=0.1, after=0.1)
    url, turns = f"{server.replace('http', 'ws')}/phone", [(question, bounds_ms(question)[1])]
    outcome = await place_call(CallPlan(url, "twilio", turns, {"greeting": ""}))
    assert (outcome.refused, outcome.violations) == ("", [])
    assert [called.name for _, called in outcome.functions] == ["set_timer"]
    transcript = transcribe(recognizer, np.concatenate(outcome.received), CARRIERS["twilio"].rate)
    assert "minute is running" in transcript.lower()
