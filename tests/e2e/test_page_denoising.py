"""Drafts and block diffusion on the page: Chromium and a real server, with a model whose drafts are scripted, or a tiny
random one of a diffusion family."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import expect
from tokenizers import Tokenizer

from chat.types import Ask
from model.decode.effort import schedule_for_effort
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.engine.loader import load_model
from tests.e2e.conftest import write_recording
from tests.e2e.test_page import page_with, wait_for
from tests.e2e.test_page_calls import recording, talking_page
from tests.fakes import FakeLanguageModel, FakeProgress, LoudnessDetector
from tests.real_time import retried_under_load
from tests.server.live_server import serving
from tests.test_dllm import save_export
from voice import session

MASK = "▒"

RECORD_RESPONSE = """() => {
  window.shown = [];
  const color = (element) => getComputedStyle(element).color;
  new MutationObserver(() => {
    const text = document.querySelector("#talk .assistant p");
    const draft = text?.querySelector(".unstable");
    if (draft) shown.push([text.firstChild.data, draft.textContent, color(text), color(draft)]);
  }).observe(document.getElementById("talk"), { subtree: true, childList: true });
}"""
"""Records each state of a response on the page: its final text, its draft, and their colours."""


class DraftingLanguageModel(FakeLanguageModel):
    """Drafts two words at a time, and commits them a moment later. The first ones come before the turn has ended."""

    async def reply(self, ask: Ask) -> AsyncIterator[FakeProgress]:
        for n in range(0, len(self.words), 2):
            first, second = self.words[n : n + 2]
            ends = len(first), len(first + second)
            yield FakeProgress("", first + second, n, n, None, (0.8, 0.7), ends, "diffusion", n + 2, n)
            await asyncio.sleep(0.4)
            finished = "stop" if n + 2 == len(self.words) else None
            yield FakeProgress(first + second, "", n + 1, n + 2, finished, drafts_shown=n + 2, drafts_kept=n + 2)


@pytest.fixture(autouse=True)
def _detect_speech_by_loudness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)


@retried_under_load(attempts=3)
async def test_masks_fill_in_step_by_step_in_the_details_of_a_response(
    chromium: str, microphone: Path, tmp_path_factory: pytest.TempPathFactory, tiny_tokenizer: Tokenizer
) -> None:
    folder, _ = save_export(
        tmp_path_factory.mktemp("export"), tiny_tokenizer, "bd3lm", "qwen3", max_position_embeddings=2048
    )
    engine = Engine(
        lambda: load_model(folder, device="cpu", precision="float32"), denoising_schedule=schedule_for_effort("high")
    )
    write_recording(microphone, recording(1.0))
    try:
        with serving(new_language_model=lambda: Conversation(engine)) as address:
            async with page_with(chromium, microphone, f"http://{address}") as page:
                await page.click("#start")
                await page.click("#talk .assistant .steps summary")
                await page.wait_for_function("document.querySelectorAll('.steps li').length >= 8")
                lines = await page.locator("#talk .steps li").evaluate_all(
                    "all => all.map((line) => [line.value, line.firstChild.data, line.lastChild.textContent])"
                )
                events = await wait_for(page, "rejoinder.draft")
    finally:
        engine.close()
    numbers = [number for number, _, _ in lines]
    assert numbers == list(range(numbers[0], numbers[0] + len(lines)))
    masks = [rest.count(MASK) for _, _, rest in lines]
    assert 0 < max(masks) < 32
    assert all(after < before or before == 0 for before, after in itertools.pairwise(masks))  # 0 ends a block
    shown = {event["step"]: event["denoised"] for event in events if event["denoised"]}
    assert all(rest == shown[number] for number, _, rest in lines[:-1] if number in shown)
    assert any(committed for _, committed, _ in lines)


@retried_under_load(attempts=3)
async def test_a_draft_is_grey_and_the_same_words_turn_black(chromium: str, microphone: Path) -> None:
    text = "The capital of France is Paris, a city of two million people who like to eat."
    model = DraftingLanguageModel(re.findall(" ?[^ ]+", text))
    async with talking_page(chromium, microphone, model, 1.0) as page:
        await page.evaluate(RECORD_RESPONSE)
        await page.click("#start")
        await expect(page.locator("#talk .assistant .drafted")).to_have_text("drafted: diffusion; 16 of 16 tokens kept")
        shown = await page.evaluate("shown")
    final_texts = [final for final, *_ in shown]
    settled = [n for n, (final, draft, *_) in enumerate(shown) if draft and final + draft in final_texts[n:]]
    assert len(settled) >= 2 and all(text.startswith(final + draft) for final, draft, *_ in shown)
    assert shown[-1][:2] == [text, ""]
    (black,), (grey,) = {state[2] for state in shown}, {state[3] for state in shown}
    assert black != grey


@retried_under_load(attempts=3)
async def test_a_response_whose_drafts_are_verified_has_no_such_details(chromium: str, microphone: Path) -> None:
    async with talking_page(chromium, microphone, FakeLanguageModel(), 1.0) as page:
        await page.click("#start")
        await wait_for(page, "response.done")
        await expect(page.locator("#talk .assistant")).to_contain_text("Paris.")
        await expect(page.locator("#talk .steps")).to_have_count(0)
