"""The caption view, a listener of it, and the dictation, in Chromium. The speech recognizer is a fake."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from playwright.async_api import BrowserContext, async_playwright, expect

from tests.e2e.conftest import synthesize, write_recording
from tests.e2e.test_page import FLAGS
from tests.fakes import FakeLanguageModel, fake_speech_models
from tests.real_time import HANG_S
from tests.server.live_server import serving
from voice.audio.vad import Silero, bundled_silero
from voice.speech_models import SpeechModels
from voice.tts import Voice

SENTENCE = "What is the capital of France?"


def hearing_models() -> SpeechModels:
    """Fakes, but for the voice detector."""
    return replace(fake_speech_models(), silero=Silero(bundled_silero()))


@asynccontextmanager
async def browser(chromium: str, microphone: Path, voice: Voice) -> AsyncIterator[BrowserContext]:
    """A browser whose microphone hears a sentence."""
    write_recording(microphone, synthesize(voice, SENTENCE, before=1.0, after=20.0))
    flags = ["--use-fake-device-for-media-stream", f"--use-file-for-fake-audio-capture={microphone}%noloop"]
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=chromium, args=[*FLAGS, *flags])
        context = await opened.new_context(viewport={"width": 1280, "height": 720})
        context.set_default_timeout(1000 * HANG_S)
        await context.grant_permissions(["microphone", "clipboard-read", "clipboard-write"])
        yield context
        await opened.close()


async def test_captions_appear_large_are_saved_as_subtitles_and_reach_a_listener(
    chromium: str, microphone: Path, voice: Voice, tmp_path: Path
) -> None:
    with serving(speech_models=hearing_models()) as address:
        async with browser(chromium, microphone, voice) as context:
            speaker, listener = await context.new_page(), await context.new_page()
            await speaker.goto(f"http://{address}/captions.html")
            await speaker.click("#start")
            await expect(speaker.locator("#share")).to_be_enabled()
            link = await speaker.evaluate("captions.link()")
            assert "?captions=cap_" in link and "#key=ct_" in link
            await listener.goto(link)
            for page in (speaker, listener):
                await expect(page.locator("#live")).to_have_text(SENTENCE)
                await expect(page.locator("#said li span")).to_have_text(SENTENCE)
            await expect(speaker.locator("#listeners")).to_have_text("1 listener")
            assert "key" not in listener.url  # it is kept for the tab only
            await expect(listener.locator("#start")).to_be_hidden()
            for kind, first in (("srt", "1\n00:00:0"), ("vtt", "WEBVTT\n\n00:00:0")):
                async with listener.expect_download() as saving:
                    await listener.click(f"#{kind}")
                await (await saving.value).save_as(tmp_path / kind)
                saved = (tmp_path / kind).read_text()
                assert saved.startswith(first) and " --> " in saved and SENTENCE in saved.replace("\n", " ")
            size = await speaker.locator("#live").evaluate("element => parseFloat(getComputedStyle(element).fontSize)")
            assert size >= 40
            await speaker.click("#start")
            await expect(listener.locator("#phase")).to_have_text("Ended")


async def test_dictation_shows_clean_text_and_copies_it(chromium: str, microphone: Path, voice: Voice) -> None:
    model = FakeLanguageModel(["What is the", " capital", " of France"])
    with serving(new_language_model=lambda: model, speech_models=hearing_models()) as address:
        async with browser(chromium, microphone, voice) as context:
            page = await context.new_page()
            await page.goto(f"http://{address}/dictation.html")
            await page.click("#start")
            await expect(page.locator("#text")).to_have_text("What is the capital of France")
            await page.click("#copy")
            await expect(page.locator("#copy")).to_have_text("Copied")
            assert await page.evaluate("navigator.clipboard.readText()") == "What is the capital of France"
            await page.click("#raw")
            await expect(page.locator("#text")).to_have_text(SENTENCE)
