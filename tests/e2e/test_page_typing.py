"""Typed messages, timers and the state of the server on the page: Chromium and a real server, with fake models."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from agent.tools.server_tools import ServerTools, ToolSettings
from server.access.admission import Admission
from server.access.keys import ApiKeys
from tests.e2e.test_page import page_with, wait_for
from tests.fakes import FakeLanguageModel
from tests.real_time import retried_under_load
from tests.server.live_server import serving

QUESTION = "What is the capital of France?"


async def type_message(page: Page, text: str) -> None:
    await page.fill("#typed", text)
    await page.press("#typed", "Enter")


@retried_under_load(attempts=3)
async def test_a_typed_question_is_answered_aloud_without_a_microphone(chromium: str) -> None:
    model = FakeLanguageModel()
    with serving(new_language_model=lambda: model) as address:
        async with page_with(chromium, None, f"http://{address}") as page:
            await expect(page.locator("#model")).to_have_text("Language model: tiny")
            await page.get_by_role("button", name=QUESTION).click()  # one of the examples
            await wait_for(page, "response.done")
            await expect(page.locator("#talk .user p")).to_have_text(QUESTION)
            await expect(page.locator("#talk .assistant p")).to_have_text("The capital of France is Paris.")
            assert await wait_for(page, "response.output_audio.delta")
            await expect(page.locator("#phase")).to_have_text("Ready")
            await type_message(page, "And of Spain?")  # m would mute, the space bar talk
            await wait_for(page, "response.done", 2)
            await expect(page.locator("#talk .user p").nth(1)).to_have_text("And of Spain?")
            await expect(page.locator("#empty")).to_be_hidden()
            await expect(page.locator("#settled p")).to_have_text(["Rejoinder: The capital of France is Paris."] * 2)
            assert await page.evaluate("sentBlocks.length") == 0
    contents = [message.content for message in model.prompts[-1]]
    assert contents[-3:] == [QUESTION, "The capital of France is Paris.", "And of Spain?"]


@retried_under_load(attempts=3)
async def test_a_typed_message_takes_the_place_of_the_response_in_progress(chromium: str) -> None:
    model = FakeLanguageModel([f" word{n}" for n in range(80)])
    with serving(new_language_model=lambda: model) as address:
        async with page_with(chromium, None, f"http://{address}") as page:
            await type_message(page, "Tell me a story.")
            await wait_for(page, "response.output_audio.delta", 3)
            await type_message(page, "Stop.")
            await expect(page.locator("#talk .assistant .interrupted")).to_be_visible()
            done = await wait_for(page, "response.done", 2)
            shown = await page.locator("#talk > li").evaluate_all("all => all.map((one) => one.className)")
            await expect(page.locator("#notice")).to_be_hidden()
    assert done[0]["response"]["status"] == "cancelled"
    assert shown == ["user", "assistant", "user", "assistant"]


@retried_under_load(attempts=3)
async def test_answers_are_text_where_the_page_may_not_play_sound_or_the_user_wants_none(chromium: str) -> None:
    with serving() as address:
        async with page_with(chromium, None, f"http://{address}") as page:
            fail = "rejoinder.loudspeaker.open = async () => { throw new TypeError('no audioWorklet'); }"
            await page.evaluate(f"() => {{ {fail} }}")
            await type_message(page, QUESTION)
            await wait_for(page, "response.done")
            await expect(page.locator("#talk .assistant p")).to_have_text("The capital of France is Paris.")
            types = await page.evaluate("serverEvents.map(({type}) => type)")
    assert "response.output_text.delta" in types and "response.output_audio.delta" not in types


@retried_under_load(attempts=3)
async def test_a_running_timer_is_shown_until_it_is_due(chromium: str, tmp_path: Path) -> None:
    model = FakeLanguageModel(calls=[("set_timer", '{"seconds": 3, "name": "tea"}')])
    tools = ServerTools(ToolSettings(data=tmp_path))
    with serving(new_language_model=lambda: model, tools=tools) as address:
        async with page_with(chromium, None, f"http://{address}") as page:
            await type_message(page, "Please do it.")
            await expect(page.locator("#alarms li")).to_have_text("Tea timer 0:02")
            await expect(page.locator("#talk .call")).to_contain_text("set timer (seconds: 3, name: tea)")
            await expect(page.locator("#alarms")).to_be_hidden()
            await expect(page.locator("#talk .assistant p").last).to_contain_text("Your tea timer for 3 seconds is up.")


async def test_lines_and_code_of_an_answer_are_shown_as_written(chromium: str) -> None:
    model = FakeLanguageModel(
        ["Here it is:\n", "```python\n", "def add(a, b):\n", "    return a + b\n", "```\n", "Done."]
    )
    with serving(new_language_model=lambda: model) as address:
        async with page_with(chromium, None, f"http://{address}") as page:
            await type_message(page, "Write a function.")
            await wait_for(page, "response.done")
            await expect(page.locator("#talk .assistant code")).to_have_text("def add(a, b):\n    return a + b")
            await expect(page.locator("#talk .assistant p")).to_contain_text("Done.")
            await expect(page.locator("#talk .assistant .unstable")).to_be_empty()  # the last step is drawn
            shown = await page.locator("#talk .assistant p").inner_text()
    assert "```" not in shown and shown.splitlines()[0] == "Here it is:" and shown.endswith("Done.")


RICH = """### Result
It is **5 *small* apples**, `x = "<b>"`: \\( 3 \\times \\frac{1}{2} = \\boxed{1.5} \\), $x^2$, 2**3 = 8**1, $5 and $6.
- one
- two"""

PLAIN = """Result
It is 5 small apples, x = "<b>": 3 × 1/2 = 1.5, x², 2**3 = 8**1, $5 and $6.
• one
• two"""


async def test_markdown_and_formulas_of_an_answer_are_formatted_and_what_is_typed_is_not(chromium: str) -> None:
    with serving(new_language_model=lambda: FakeLanguageModel(RICH.split("~"))) as address:
        async with page_with(chromium, None, f"http://{address}") as page:
            await type_message(page, "What is **that**?")
            await wait_for(page, "response.done")
            answer = page.locator("#talk .assistant p")
            await expect(answer).to_have_text(PLAIN, use_inner_text=True)
            await expect(answer.locator("strong")).to_have_text(["Result", "5 small apples"])
            await expect(answer.locator("code")).to_have_text('x = "<b>"')
            await expect(answer.locator("em")).to_have_text("small")
            await expect(page.locator("#talk .user p")).to_have_text("What is **that**?")
            assert await answer.locator("b").count() == 0


async def test_what_is_typed_without_a_connection_is_shown_and_waits(chromium: str) -> None:
    with ExitStack() as stack:
        address = stack.enter_context(serving())
        async with page_with(chromium, None, f"http://{address}") as page:
            await type_message(page, QUESTION)
            await wait_for(page, "response.done")
            stack.close()
            await expect(page.locator("#notice")).to_contain_text("connection to the server is lost")
            await type_message(page, "And of Spain?")
            await expect(page.locator("#talk .user.waiting p")).to_have_text("And of Spain?")
            items = await page.evaluate("rejoinder.transcript.items()")
    assert "And of Spain?" not in str(items), "it would be sent twice"


async def test_the_page_says_that_the_server_requires_a_key(chromium: str) -> None:
    with serving(admission=Admission(3, ApiKeys(frozenset(["secret"])))) as address:
        async with page_with(chromium, None, f"http://{address}") as page:
            sentence = "This server requires an API key. Enter it under Settings."
            await expect(page.locator("#starting")).to_have_text(sentence)
            await type_message(page, QUESTION)
            await expect(page.locator("#notice")).to_contain_text("requires an API key")
            await page.get_by_label("API key").fill("wrong")
            await page.get_by_label("API key").press("Enter")
            await expect(page.locator("#starting")).to_contain_text("does not accept the API key")
            await page.get_by_label("API key").fill("secret")
            await page.get_by_label("API key").press("Enter")
            await expect(page.locator("#starting")).to_be_hidden()
            await expect(page.locator("#model")).to_be_visible()
            await type_message(page, "Hello.")
            await expect(page.locator("#talk .user p")).to_have_text([QUESTION, "Hello."])  # nothing typed is lost


@pytest.mark.parametrize("path", ["", "captions.html", "dictation.html"])
async def test_the_pages_open_and_say_that_the_server_does_not_answer(chromium: str, path: str) -> None:
    with serving() as address:
        async with page_with(chromium, None, f"http://{address}") as page:
            await page.evaluate("navigator.serviceWorker.ready")
            await page.wait_for_function("navigator.serviceWorker.controller")
            await page.context.set_offline(True)
            await page.goto(f"http://{address}/{path}")
            await expect(page.get_by_role("heading")).to_be_visible()
            if not path:
                await expect(page.locator("#starting")).to_contain_text("does not answer")
                await page.context.set_offline(False)
                await expect(page.locator("#starting")).to_be_hidden()
