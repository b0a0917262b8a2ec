"""The page in Chromium, with a WAV file as its microphone, against the real server and models."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from playwright.async_api import Page, async_playwright, expect

from tests.e2e.conftest import synthesize, transcribe, write_recording
from tests.real_time import HANG_S, retried_under_load
from voice.asr import Recognizer
from voice.audio.codec import OUTPUT_RATE, Samples
from voice.tts import Voice

expect.set_options(timeout=1000 * HANG_S)

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--use-fake-ui-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
]

# Records all server events, and the audio that the page sends to the loudspeaker.
TAP = """
window.serverEvents = [];
window.playedBlocks = [];
window.sentBlocks = [];
const sendAudio = rejoinder.realtime.sendAudio.bind(rejoinder.realtime);
rejoinder.realtime.sendAudio = (block) => {
  sentBlocks.push([performance.now(), Math.max(...block.map(Math.abs)) / 32768]);
  sendAudio(block);
};
rejoinder.realtime.addEventListener('any', ({detail}) => serverEvents.push({at: performance.now(), ...detail}));
const open = rejoinder.loudspeaker.open.bind(rejoinder.loudspeaker);
rejoinder.loudspeaker.open = async () => {
  await open();
  const {context, node} = rejoinder.loudspeaker;
  const code = `registerProcessor('tap', class extends AudioWorkletProcessor {
    process([input]) { if (input[0]) this.port.postMessage(input[0].slice()); return true; } })`;
  await context.audioWorklet.addModule('data:text/javascript,' + encodeURIComponent(code));
  const tap = new AudioWorkletNode(context, 'tap');
  tap.port.onmessage = ({data}) => playedBlocks.push({at: performance.now(), samples: data});
  node.connect(tap);
};
"""
PLAYED = """() => playedBlocks.map(({at, samples}) => {
  let peak = 0, text = '';
  const pcm = new Int16Array(samples.length);
  samples.forEach((s, n) => { pcm[n] = s * 32767; peak = Math.max(peak, Math.abs(s)); });
  for (const byte of new Uint8Array(pcm.buffer)) text += String.fromCharCode(byte);
  return [at, peak, btoa(text)];
})"""

RECORD_NOTICES = """() => {
  const notice = document.getElementById('notice');
  window.notices = [];
  new MutationObserver(() => notices.push(notice.textContent))
    .observe(notice, {subtree: true, childList: true, characterData: true});
}"""
SECOND_OF_SILENCE_AFTER_SPEECH = """() => {
  const loud = sentBlocks.filter(([at, level]) => level > 0.02);
  return loud.length > 0 && sentBlocks.at(-1)[0] > loud.at(-1)[0] + 1000;
}"""


@asynccontextmanager
async def page_with(chromium: str, microphone: Path | None, server: str) -> AsyncIterator[Page]:
    flags = list(FLAGS)
    if microphone is not None:
        flags += ["--use-fake-device-for-media-stream", f"--use-file-for-fake-audio-capture={microphone}%noloop"]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=flags)
        context = await browser.new_context(bypass_csp=True)  # for the tap, which is not part of the page
        page = await context.new_page()
        page_errors: list[str] = []
        page.on("pageerror", lambda error: page_errors.append(str(error)))
        await page.goto(server)
        await page.wait_for_function("window.rejoinder")
        await page.evaluate(TAP)
        yield page
        await browser.close()
        assert page_errors == []


async def wait_for(page: Page, kind: str, count: int = 1, seconds: float = HANG_S) -> list[dict[str, Any]]:
    await page.wait_for_function(
        "([kind, count]) => serverEvents.filter((event) => event.type === kind).length >= count",
        arg=[kind, count],
        timeout=seconds * 1000,
    )
    events: list[dict[str, Any]] = await page.evaluate(f"serverEvents.filter((event) => event.type === '{kind}')")
    return events


async def played(page: Page) -> tuple[list[float], list[float], Samples]:
    """The audio sent to the loudspeaker: time and peak of each block, and all samples."""
    blocks = await page.evaluate(PLAYED)
    pcm = b"".join(base64.b64decode(block[2]) for block in blocks)
    return [b[0] for b in blocks], [b[1] for b in blocks], np.frombuffer(pcm, "<i2").astype(np.float32) / 32768


@retried_under_load(attempts=3)
async def test_a_spoken_question_gets_a_spoken_response_and_the_page_shows_both(
    chromium: str, server: str, microphone: Path, voice: Voice, recognizer: Recognizer
) -> None:
    write_recording(microphone, synthesize(voice, "What is the capital of France?", before=1.0, after=20.0))
    async with page_with(chromium, microphone, server) as page:
        await page.click("#start")
        await wait_for(page, "response.done")
        await expect(page.locator("#talk .user").first).to_contain_text("capital of France")
        await expect(page.locator("#talk .assistant").first).to_contain_text("Paris")
        await expect(page.locator("#talk .assistant .latency").first).to_contain_text("ms")
        (turn,) = await wait_for(page, "rejoinder.turn")
        await expect(page.locator("#phase")).to_have_text("Listening")
        _, _, audio = await played(page)
    assert "Paris" in transcribe(recognizer, audio, OUTPUT_RATE)
    assert turn["latency_ms"] > 0 and set(turn["stages_ms"]) >= {"end_of_turn", "transcription", "synthesis"}


@retried_under_load(attempts=3)
async def test_speaking_over_the_response_stops_it_and_truncates_the_history(
    chromium: str, server: str, microphone: Path, voice: Voice
) -> None:
    question = synthesize(voice, "Please tell me a long story about a dragon and a princess.", before=1.0, after=5.0)
    write_recording(
        microphone, np.concatenate((question, synthesize(voice, "Stop, what is two plus two?", after=20.0)))
    )
    async with page_with(chromium, microphone, server) as page:
        await page.click("#start")
        (first, _) = await wait_for(page, "input_audio_buffer.speech_started", 2)
        await wait_for(page, "conversation.item.truncated")
        (retrieved,) = await wait_for(page, "conversation.item.retrieved")
        (done, _) = await wait_for(page, "response.done", 2)
        times, peaks, _ = await played(page)
        sent = await page.evaluate("sentBlocks")
        await expect(page.locator("#talk .assistant .interrupted")).to_be_visible()
    # The user's first sample: the first sound of the microphone after the pause that follows the question.
    voiced = [at for at, level in sent if level > 0.02 and at > first["at"]]
    onset = next(b for a, b in pairwise(voiced) if b - a > 2000) - 20
    assert any(level > 0.01 for at, level in zip(times, peaks, strict=True) if onset - 1000 < at < onset)
    silent_from = max(at for at, level in zip(times, peaks, strict=True) if level > 1e-3 and at < onset + 1000)
    assert silent_from - onset < 300
    # The page shows, and the model remembers, only the part that was heard.
    heard_text = retrieved["item"]["content"][0]["transcript"]
    assert retrieved["item"]["id"] == done["response"]["output"][0]["id"]
    seconds_heard = 0.01 * sum(level > 0.01 for at, level in zip(times, peaks, strict=True) if at < onset) * 128 / 240
    assert 1 <= len(heard_text.split()) < 5 * seconds_heard + 5


@retried_under_load(attempts=3)
async def test_push_to_talk_with_the_keyboard(chromium: str, server: str, microphone: Path, voice: Voice) -> None:
    write_recording(microphone, synthesize(voice, "What is the capital of Italy?", before=4.0, after=20.0))
    async with page_with(chromium, microphone, server) as page:
        await page.click(".settings summary")
        await page.check("#push-to-talk")
        await page.locator("h1").click()
        await page.click("#start")
        await wait_for(page, "session.updated")
        await page.keyboard.down("Space")
        await expect(page.locator("#phase")).to_have_text("You are speaking")
        await page.wait_for_function(SECOND_OF_SILENCE_AFTER_SPEECH)
        await page.keyboard.up("Space")
        await wait_for(page, "response.done")
        await expect(page.locator("#talk .user")).to_contain_text("Italy")
        await expect(page.locator("#talk .assistant")).to_contain_text("Rome")
        assert not await page.evaluate(
            "serverEvents.some((event) => event.type === 'input_audio_buffer.speech_started')"
        )


async def test_the_m_key_mutes_the_microphone_which_sends_silence(
    chromium: str, server: str, microphone: Path, voice: Voice
) -> None:
    """The user talks all the time."""
    write_recording(microphone, np.concatenate([synthesize(voice, "What is the capital of France?")] * 30))
    async with page_with(chromium, microphone, server) as page:
        await page.click("#start")
        await page.wait_for_function("sentBlocks.some(([at, level]) => level > 0.02)")
        await page.keyboard.press("m")
        await expect(page.locator("#mute")).to_have_attribute("aria-pressed", "true")
        # What was recorded before may still be on its way for a moment.
        muted_at = 500 + await page.evaluate("performance.now()")
        await page.wait_for_function(f"sentBlocks.at(-1)[0] > {muted_at + 2000}")
        levels = await page.evaluate(f"sentBlocks.filter(([at]) => at > {muted_at}).map(([at, level]) => level)")
        assert max(levels) == 0
        await page.keyboard.press("m")
        await expect(page.locator("#mute")).to_have_attribute("aria-pressed", "false")
        await page.wait_for_function("sentBlocks.at(-1)[1] > 0.02")


@retried_under_load(attempts=3)
async def test_a_lost_connection_is_shown_and_restored_with_the_conversation(
    chromium: str, server: str, microphone: Path, voice: Voice
) -> None:
    write_recording(microphone, synthesize(voice, "What is the capital of France?", before=1.0, after=30.0))
    async with page_with(chromium, microphone, server) as page:
        await page.click("#start")
        await wait_for(page, "response.done")
        await page.locator("#phase[data-phase=listening]").wait_for()  # the page keeps what was heard
        await page.evaluate(RECORD_NOTICES)
        await page.evaluate("rejoinder.realtime.socket.close(1000)")  # ends the conversation on the server
        await wait_for(page, "session.updated", 2)
        await expect(page.locator("#notice")).to_be_hidden()
        assert "connection to the server is lost" in "".join(await page.evaluate("notices"))
        added = [
            event
            for event in await wait_for(page, "conversation.item.added", 6)
            if event["item"]["type"] == "message"  # the server's tools are an item as well, once for each connection
        ][-2:]
    assert [event["item"]["role"] for event in added] == ["user", "assistant"]
    assert "Paris" in added[1]["item"]["content"][0]["text"]


async def test_a_missing_microphone_is_shown(chromium: str, server: str) -> None:
    async with page_with(chromium, None, server) as page:
        await page.click("#start")
        await expect(page.locator("#notice")).to_contain_text("There is no microphone. Plug one in")
        await expect(page.locator("#start")).to_have_text("Start talking")


async def test_a_denied_microphone_permission_is_shown(chromium: str, server: str) -> None:
    async with page_with(chromium, None, server) as page:
        refuse = "navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('', 'NotAllowedError') }"
        await page.evaluate(f"() => {{ {refuse} }}")
        await page.click("#start")
        await expect(page.locator("#notice")).to_contain_text("Microphone access was denied. Allow it")
        await expect(page.locator("#phase")).to_have_text("Not started")


async def test_an_insecure_page_explains_that_it_has_no_microphone(chromium: str, server: str) -> None:
    async with page_with(chromium, None, server) as page:
        await page.add_init_script("Object.defineProperty(window, 'isSecureContext', {value: false})")
        await page.reload()
        await expect(page.locator("#notice")).to_contain_text("not in a secure context")
        await page.click("#start")
        await expect(page.locator("#notice")).to_contain_text("--tls-self-signed")


async def test_the_page_fits_a_phones_screen(chromium: str, server: str) -> None:
    async with page_with(chromium, None, server) as page:
        await page.set_viewport_size({"width": 360, "height": 640})
        wide = await page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 360
        box = await page.locator("#start").bounding_box()
        assert box is not None and box["height"] >= 44 and box["y"] + box["height"] <= 640
