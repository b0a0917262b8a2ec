"""Function calls, sources and the choice of voice on the page: Chromium and a real server, with fake models."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.async_api import Page, expect

from tests.agent.documents.sample_documents import FakeDocuments, match
from tests.e2e.conftest import write_recording
from tests.e2e.test_page import page_with, wait_for
from tests.fakes import FakeLanguageModel, LoudnessDetector
from tests.real_time import retried_under_load
from tests.server.live_server import serving
from voice import session
from voice.audio.codec import OUTPUT_RATE

ADD_TOOLS = """() => {
  const city = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
  rejoinder.tools.add({ name: "get_weather", description: "The weather", parameters: city }, async ({ city }) => {
    await new Promise((done) => { window.finishTool = done; });
    if (city === "Atlantis") throw new Error("there is no such city");
    return { sky: "rain", city };
  });
}"""


@pytest.fixture(autouse=True)
def _detect_speech_by_loudness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)


def recording(*starts_s: float) -> np.ndarray:
    """A user who makes noise for half a second at these times. The browser would remove a constant."""
    samples = np.zeros(int(40 * OUTPUT_RATE), np.float32)
    noise = np.random.default_rng(0).choice((-0.6, 0.6), OUTPUT_RATE // 2)
    for start_s in starts_s:
        samples[int(start_s * OUTPUT_RATE) :][: len(noise)] = noise
    return samples


@asynccontextmanager
async def talking_page(
    chromium: str, microphone: Path, language_model: FakeLanguageModel, *starts_s: float, **settings: Any
) -> AsyncIterator[Page]:
    write_recording(microphone, recording(*starts_s))
    with serving(new_language_model=lambda: language_model, **settings) as address:
        async with page_with(chromium, microphone, f"http://{address}") as page:
            yield page


@retried_under_load(attempts=3)
async def test_the_page_runs_shows_and_logs_function_calls(chromium: str, microphone: Path) -> None:
    model = FakeLanguageModel(calls=[("get_weather", '{"city": "Oslo"}')])
    async with talking_page(chromium, microphone, model, 1.0) as page:
        logged: list[str] = []
        page.on("console", lambda message: logged.append(message.text))
        await page.evaluate(ADD_TOOLS)
        await page.click("#start")
        await expect(page.locator("#talk .call")).to_have_text("get weather (city: Oslo) …")
        await page.evaluate("finishTool()")
        await expect(page.locator("#talk .call")).to_have_text(
            'get weather (city: Oslo) → {"sky":"rain","city":"Oslo"}'
        )
        await expect(page.locator("#talk .assistant")).to_contain_text("Paris.")
        await wait_for(page, "response.done", 2)
        classes = await page.locator("#talk > li").evaluate_all("all => all.map((one) => one.className)")
    assert classes == ["user", "call", "assistant"]
    assert [line for line in logged if "get_weather" in line] == [
        'function call get_weather({"city": "Oslo"})',
        'function call get_weather({"city": "Oslo"}) → {"sky":"rain","city":"Oslo"}',
    ]
    assert model.prompts[-1][-1].content == '{"sky":"rain","city":"Oslo"}'


@retried_under_load(attempts=3)
async def test_a_function_that_fails_is_shown_and_the_model_learns_of_it(chromium: str, microphone: Path) -> None:
    model = FakeLanguageModel(calls=[("get_weather", '{"city": "Atlantis"}')])
    async with talking_page(chromium, microphone, model, 1.0) as page:
        await page.evaluate(ADD_TOOLS)
        await page.click("#start")
        await expect(page.locator("#talk .call")).to_contain_text("…")
        await page.evaluate("finishTool()")
        await expect(page.locator("#talk .call")).to_contain_text("→ The function failed: there is no such city")
        await wait_for(page, "response.done", 2)
    assert model.prompts[-1][-1].content == "The function failed: there is no such city"


@retried_under_load(attempts=3)
async def test_another_voice_can_be_chosen_in_the_middle_of_a_conversation(chromium: str, microphone: Path) -> None:
    async with talking_page(chromium, microphone, FakeLanguageModel(), 1.0, 5.0) as page:
        await page.click("#start")
        (done,) = await wait_for(page, "response.done")
        assert done["response"]["audio"]["output"]["voice"] == "fake"
        await page.click(".settings summary")
        await page.select_option("#voice", "other")
        await wait_for(page, "session.updated", 2)
        _, done = await wait_for(page, "response.done", 2)
        errors = await page.evaluate("serverEvents.filter((event) => event.type === 'error')")
        await expect(page.locator("#talk .assistant")).to_have_count(2)
    assert done["response"]["audio"]["output"]["voice"] == "other"
    assert errors == []


@retried_under_load(attempts=3)
async def test_the_page_shows_the_passages_that_a_response_is_based_on(chromium: str, microphone: Path) -> None:
    documents = FakeDocuments(match(1, title="Atlas", text="The capital of France is Paris.\n<b>bold</b>"))
    model = FakeLanguageModel([" it", " is", " Paris."])
    async with talking_page(chromium, microphone, model, 1.0, documents=documents) as page:
        await page.click("#start")
        await expect(page.locator("#talk .assistant p")).to_have_text("According to Atlas, it is Paris.")
        await expect(page.locator("#talk .sources summary")).to_have_text("From Atlas")
        await page.click("#talk .sources summary")
        quote = page.locator("#talk .sources blockquote")
        await expect(quote).to_contain_text("The capital of France is Paris.\n<b>bold</b>")
        await expect(quote.locator("cite")).to_have_text("house.md, Heating, page 2")
