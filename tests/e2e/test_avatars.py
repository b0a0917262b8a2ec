"""The lines of the guide that move the lips of an avatar, in Chromium, against a server with a fake voice. The avatars
are stand-ins with the interface that TalkingHead (README, appendix G) and three-vrm (VRMExpressionManager) document."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, async_playwright

from tests.e2e.test_page import FLAGS
from tests.fakes import LoudnessDetector
from tests.real_time import HANG_S
from tests.server.live_server import serving
from voice import session

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "avatars.md"
TALKING_HEAD, VRM = re.findall(r"^```js\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)

HEAD = """
const KNOWN = "sil PP FF TH DD kk CH SS nn RR aa E I O U".split(" ");
const isTimes = (list, count) => list.length === count && list.every((ms) => Number.isFinite(ms) && ms >= 0);
class Head {
  constructor() { Object.assign(this, { visemes: [], words: [], bytes: 0, interruptions: 0, ends: 0 }); }
  streamStart({ sampleRate, lipsyncType }, onAudioStart = null, onAudioEnd = null) {
    if (sampleRate !== 24000 || lipsyncType !== "visemes") throw new Error("streamStart");
    this.onAudioEnd = onAudioEnd;
  }
  streamAudio({ audio, visemes, vtimes, vdurations, words, wtimes, wdurations }) {
    if (!this.onAudioEnd) throw new Error("streamAudio before streamStart");
    if (audio) this.bytes += (audio.buffer ?? audio).byteLength;
    if (visemes) {
      if (!visemes.every((shape) => KNOWN.includes(shape))) throw new Error(`visemes ${visemes}`);
      if (!isTimes(vtimes, visemes.length) || !isTimes(vdurations, visemes.length)) throw new Error("vtimes");
      visemes.forEach((shape, n) => this.visemes.push([shape, vtimes[n], vtimes[n] + vdurations[n]]));
    }
    if (words) {
      if (!isTimes(wtimes, words.length) || !isTimes(wdurations, words.length)) throw new Error("wtimes");
      words.forEach((word, n) => this.words.push([word, wtimes[n], wtimes[n] + wdurations[n]]));
    }
  }
  streamNotifyEnd() { this.ends++; }
  streamInterrupt() { this.interruptions++; }
}
window.head = new Head();
window.socket = new WebSocket(`ws://${location.host}/v1/realtime`);
window.ask = () => {
  const content = [{ type: "input_text", text: "What is the capital of France?" }];
  for (const event of [
    { type: "conversation.item.create", item: { type: "message", role: "user", content } }, { type: "response.create" },
  ]) socket.send(JSON.stringify(event));
};
socket.onopen = () => { speakWith(head, socket); window.ready = true; };
"""

MOVE = """
const held = { aa: 0, ih: 0, ou: 0, ee: 0, oh: 0 };
const expressionManager = {
  getValue: (name) => held[name] ?? null,
  setValue: (name, weight) => {
    if (!(name in held) || !(weight >= 0 && weight <= 1)) throw new Error(`${name} ${weight}`);
    held[name] = weight;
  },
};
window.shapesAt = (visemes, moments) => {
  const found = [];
  for (let ms = 0; ms <= moments.at(-1); ms++) {
    moveLips({ expressionManager }, visemes, ms, 0.001);
    if (moments.includes(ms)) found.push({ ...held });
  }
  return found;
};
"""


@asynccontextmanager
async def page_with(chromium: str, address: str, module: str) -> AsyncIterator[Page]:
    """The server's page with a script of the guide in it."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        context = await browser.new_context(bypass_csp=True)
        page = await context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(f"http://{address}/healthz")
        await page.add_script_tag(content=module, type="module")
        yield page
        await browser.close()
        assert errors == []


async def until(page: Page, condition: str) -> None:
    await page.wait_for_function(condition, timeout=1000 * HANG_S)


async def test_talkinghead_speaks_what_the_server_says(chromium: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)
    with serving() as address:
        async with page_with(chromium, address, f"{TALKING_HEAD}\n{HEAD}") as page:
            for responses in (1, 2):
                await until(page, "window.ready")
                await page.evaluate("ask()")
                await until(page, f"head.ends === {responses}")
            head: dict[str, Any] = await page.evaluate("head")
            loud = "btoa(String.fromCharCode(...new Uint8Array(48000).map((_, n) => n % 2 ? 64 : 0)))"
            await page.evaluate(f"socket.send(JSON.stringify({{ type: 'input_audio_buffer.append', audio: {loud} }}))")
            await until(page, "head.interruptions === 1")
    sentence = "The capital of France is Paris."
    assert " ".join(word for word, _, _ in head["words"]) == f"{sentence} {sentence}"
    for times in (head["words"], head["visemes"]):
        assert times[-1][2] == pytest.approx(head["bytes"] / 48, abs=2)  # the second response follows the first
        assert all(one[2] == pytest.approx(other[1], abs=2) for one, other in pairwise(times))


async def test_a_vrm_avatar_opens_and_closes_its_mouth(chromium: str) -> None:
    visemes = [
        {"viseme": "PP", "azure_id": 21, "start_ms": 0, "end_ms": 100},
        {"viseme": "aa", "azure_id": 2, "start_ms": 100, "end_ms": 400},
        {"viseme": "ou", "azure_id": 7, "start_ms": 400, "end_ms": 700},
    ]
    with serving() as address:
        async with page_with(chromium, address, f"{VRM}\n{MOVE}") as page:
            await until(page, "typeof shapesAt === 'function'")
            closed, open_, round_, after = await page.evaluate(
                "([visemes, moments]) => shapesAt(visemes, moments)", [visemes, [90, 390, 690, 1100]]
            )
    assert max(closed.values()) == 0
    assert open_["aa"] > 0.95 and open_["ou"] == 0
    assert round_["ou"] > 0.95 and round_["aa"] < 0.05
    assert max(after.values()) < 0.01
