"""The page's face in Chromium: its mouth and the marked word follow a real voice. The language model is a fake."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from tests.e2e.conftest import write_recording
from tests.e2e.test_page import page_with, wait_for
from tests.e2e.test_page_calls import recording
from tests.fakes import FakeRecognizer, LoudnessDetector, fake_speech_models
from tests.real_time import retried_under_load
from tests.server.live_server import serving
from voice import session
from voice.tts import Voice

# Notes every change of the mouth and of the marked word, and what the audio's own position says should be marked.
WATCH = """() => {
  window.seen = { mouths: new Set(), words: [] };
  const watch = () => {
    seen.mouths.add(document.querySelector("#face .mouth").getAttribute("d"));
    const [range] = CSS.highlights.get("spoken") ?? [];
    const word = range?.toString();
    if (word && seen.words.at(-1) !== word && !word.includes(" ")) seen.words.push(word);
    requestAnimationFrame(watch);
  };
  watch();
}"""


async def show_face(page: Page) -> None:
    await page.click(".settings summary")
    await page.check("#show-face")
    await page.evaluate(WATCH)


@retried_under_load(attempts=3)
async def test_the_face_speaks_and_the_spoken_words_are_marked_one_after_the_other(
    chromium: str, microphone: Path, voice: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)
    write_recording(microphone, recording(1.0))
    with serving(speech_models=fake_speech_models(FakeRecognizer(), voice)) as address:
        async with page_with(chromium, microphone, f"http://{address}") as page:
            await expect(page.locator("#face")).to_be_hidden()
            await show_face(page)
            await expect(page.locator("#face svg")).to_be_visible()
            closed = await page.locator("#face .mouth").get_attribute("d")
            await page.click("#start")
            await wait_for(page, "response.done")
            await expect(page.locator("#phase")).to_have_text("Listening")
            await page.wait_for_function("!CSS.highlights.has('spoken')")
            assert await page.evaluate("seen.words") == ["The", "capital", "of", "France", "is", "Paris."]
            assert await page.evaluate("seen.mouths.size") > 20
            await expect(page.locator("#face .mouth")).to_have_attribute("d", str(closed))
            await page.uncheck("#show-face")
            await expect(page.locator("#face")).to_be_hidden()


@retried_under_load(attempts=3)
async def test_without_the_face_the_page_asks_for_no_times(
    chromium: str, microphone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)
    write_recording(microphone, recording(1.0))
    with serving() as address:
        async with page_with(chromium, microphone, f"http://{address}") as page:
            await page.click("#start")
            await wait_for(page, "response.done")
            types = set(await page.evaluate("serverEvents.map(({type}) => type)"))
    assert not types & {"rejoinder.words", "rejoinder.visemes"}
