"""The page says where words go when the operator has named a bigger model elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.agent.remote.scripted_server import ScriptedServer, remote_llm, text
from tests.e2e.conftest import write_recording
from tests.e2e.test_page import page_with, wait_for
from tests.e2e.test_page_calls import recording
from tests.fakes import LoudnessDetector
from tests.real_time import retried_under_load
from tests.server.live_server import serving
from voice import session


@retried_under_load(attempts=3)
async def test_the_page_says_before_and_with_each_answer_where_words_go(
    chromium: str, microphone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)
    write_recording(microphone, recording(1.0))
    server = ScriptedServer([text("Paris", " it is.")])
    with serving(remote_llm=remote_llm(server)) as address:
        async with page_with(chromium, microphone, f"http://{address}") as page:
            sentence = "The text of the conversation is sent to big at llm.example.org."
            await expect(page.locator("#remote")).to_have_text(sentence)
            assert not server.bodies
            await page.click("#start")
            await expect(page.locator("#talk .note")).to_have_text("Sent to big at llm.example.org: all questions")
            await expect(page.locator("#talk .assistant")).to_contain_text("Paris it is.")
            await wait_for(page, "response.done")
            classes = await page.locator("#talk > li").evaluate_all("all => all.map((one) => one.className)")
    assert classes == ["user", "note", "assistant"]
