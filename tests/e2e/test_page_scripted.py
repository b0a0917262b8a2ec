"""The pages in Chromium. A test scripts the server's side of the connection: what comes at the wrong moment."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from playwright.async_api import Page, WebSocketRoute, async_playwright, expect

from tests.e2e.test_page import FLAGS
from tests.real_time import HANG_S, wait_until
from tests.server.live_server import serving

expect.set_options(timeout=1000 * HANG_S)

QUESTION = "What is the capital of France?"
COMMIT, CLEAR, RESPOND = "input_audio_buffer.commit", "input_audio_buffer.clear", "response.create"
COMPLETED = "conversation.item.input_audio_transcription.completed"


class Script:
    """The server's side of the page's connections, the newest of which it uses.

    Attributes:
        sockets: all connections.
        sent: the events that the page sent on each, without audio.
        closed: the close code of each, once the page has closed it.
    """

    def __init__(self) -> None:
        self.sockets: list[WebSocketRoute] = []
        self.sent: list[list[dict[str, Any]]] = []
        self.closed: list[int | None] = []

    def accept(self, socket: WebSocketRoute) -> None:
        """Take a connection."""
        number, sent = len(self.sockets), list[dict[str, Any]]()
        self.sockets.append(socket)
        self.sent.append(sent)
        self.closed.append(None)

        def receive(message: str | bytes) -> None:
            event = json.loads(message)
            if event["type"] != "input_audio_buffer.append":
                sent.append(event)

        def close(code: int | None, reason: str | None) -> None:
            self.closed[number] = code

        socket.on_message(receive)
        socket.on_close(close)

    async def connection(self, number: int) -> None:
        """Wait for the page to connect, for the `number`th time."""
        await wait_until(lambda: len(self.sockets) >= number)

    def event(self, type: str, **fields: Any) -> None:
        """Send an event to the page."""
        self.sockets[-1].send(json.dumps({"type": type, **fields}))

    async def begin(self, session: str, resume_token: str = "") -> None:
        """Create a session, or continue it."""
        self.event("session.created", session={"id": session, "model": "tiny"})
        if resume_token:
            self.event("rejoinder.resume", token=resume_token)
        self.event("session.updated", session={"id": session})
        await wait_until(lambda: "session.update" in self.types)

    async def end(self, code: int, reason: str, message: str) -> None:
        """Send why the connection ends, and close it."""
        self.event("error", error={"code": reason, "message": message})
        await self.sockets[-1].close(code=code, reason=reason)

    @property
    def types(self) -> list[str]:
        """The types of what the page sent on the newest connection."""
        return [event["type"] for event in self.sent[-1]]

    async def gets(self, *types: str) -> None:
        """Wait until exactly these events were sent on the newest connection, after the settings of the session."""
        expected = list(types)
        await wait_until(lambda: [type for type in self.types if type != "session.update"] == expected)


@asynccontextmanager
async def scripted(chromium: str, path: str = "") -> AsyncIterator[tuple[Page, Script]]:
    """A page whose microphone beeps, and the script that it is connected to."""
    script = Script()
    with serving() as address:
        async with async_playwright() as playwright:
            flags = [*FLAGS, "--use-fake-device-for-media-stream"]
            browser = await playwright.chromium.launch(executable_path=chromium, args=flags)
            context = await browser.new_context(bypass_csp=True)  # for the script
            await context.grant_permissions(["microphone", "clipboard-read", "clipboard-write"])
            page = await context.new_page()
            page_errors: list[str] = []
            page.on("pageerror", lambda error: page_errors.append(str(error)))
            await page.route_web_socket("**/v1/realtime", script.accept)
            await page.goto(f"http://{address}/{path}")
            await page.wait_for_function("window.rejoinder || window.captions || window.dictation")
            yield page, script
            await browser.close()
    assert page_errors == []


async def type_message(page: Page, text: str) -> None:
    await page.fill("#typed", text)
    await page.press("#typed", "Enter")


async def talk(page: Page, script: Script) -> None:
    """Start on any of the pages."""
    await page.click("#start")
    await script.connection(1)
    await script.begin("s1", "token")
    await expect(page.locator("#phase")).to_have_text("Listening")


# The conversation.


async def test_a_double_click_on_an_example_opens_one_connection(chromium: str) -> None:
    async with scripted(chromium) as (page, script):
        await page.get_by_role("button", name=QUESTION).dblclick()
        await script.connection(1)
        await page.evaluate("rejoinder.realtime.connect()")  # whoever connects again leaves no connection behind
        await script.connection(2)
        await wait_until(lambda: script.closed == [1000, None])
        await script.begin("s1")
        await wait_until(lambda: RESPOND in script.types)
        await asyncio.sleep(0.3)
        assert len(script.sockets) == 2


async def test_a_conversation_that_is_restored_twice_is_shown_once(chromium: str) -> None:
    async with scripted(chromium) as (page, script):
        await type_message(page, "Hello")
        await script.connection(1)
        await script.begin("s1")
        script.event("response.created", response={"id": "r1"})
        script.event("response.output_item.added", response_id="r1", item={"id": "item_a", "type": "message"})
        script.event("response.output_text.delta", response_id="r1", delta="Hi there.")
        script.event("response.done", response={"id": "r1", "status": "completed", "output": []})
        await expect(page.locator("#talk .assistant p")).to_have_text("Hi there.")
        await script.sockets[-1].close(code=1012)
        await script.connection(2)
        await script.begin("s2", "token")
        await script.gets("conversation.item.create", "conversation.item.create")
        items = [event["item"] for event in script.sent[-1] if "item" in event]
        await script.sockets[-1].close(code=1012)
        await script.connection(3)
        script.event("session.created", session={"id": "s2", "model": "tiny"})
        # As the server does, which makes up the ids that are missing.
        script.event("rejoinder.resumed", items=[{"id": f"item_{n}", **item} for n, item in enumerate(items)])
        script.event("session.updated", session={"id": "s2"})
        await expect(page.locator("#phase")).to_have_text("Ready")
        await expect(page.locator("#talk > li")).to_have_count(2)
        assert len(await page.evaluate("rejoinder.transcript.items()")) == 2


@asynccontextmanager
async def push_to_talk(chromium: str) -> AsyncIterator[tuple[Page, Script]]:
    async with scripted(chromium) as (page, script):
        await page.click(".settings summary")
        await page.check("#push-to-talk")
        await page.locator("h1").click()
        await talk(page, script)
        yield page, script


async def test_a_key_that_is_up_for_a_moment_does_not_end_the_utterance(chromium: str) -> None:
    async with push_to_talk(chromium) as (page, script):
        await page.evaluate("""() => {
            const key = (type) => document.dispatchEvent(Object.assign(new Event(type), { code: "Space", key: " " }));
            Object.defineProperty(document, "matches", { value: () => false });
            key("keydown"); key("keyup"); key("keydown"); key("keyup");
        }""")
        await script.gets(CLEAR, COMMIT)


@pytest.mark.parametrize("second", ["empty", "silent", "spoken"])
async def test_a_question_is_answered_although_the_key_is_pressed_again_meanwhile(chromium: str, second: str) -> None:
    async with push_to_talk(chromium) as (page, script):
        await page.keyboard.press("Space", delay=50)
        await script.gets(CLEAR, COMMIT)
        await page.keyboard.down("Space")
        await script.gets(CLEAR, COMMIT, CLEAR)
        script.event(COMPLETED, item_id="u1", transcript="What time is it?")
        await expect(page.locator("#talk .user p")).to_have_text("What time is it?")
        await page.keyboard.up("Space")
        await script.gets(CLEAR, COMMIT, CLEAR, COMMIT)
        if second == "empty":
            script.event("error", error={"code": "input_audio_buffer_commit_empty", "message": "it is empty"})
        else:
            script.event(COMPLETED, item_id="u2", transcript="" if second == "silent" else "In Oslo.")
        await script.gets(CLEAR, COMMIT, CLEAR, COMMIT, RESPOND)
        await expect(page.locator("#notice")).to_be_hidden()


async def test_an_idle_page_pauses_until_the_user_goes_on(chromium: str) -> None:
    async with scripted(chromium) as (page, script):
        await type_message(page, "Hello")
        await script.connection(1)
        await script.begin("s1")
        await script.end(1001, "idle_timeout", "the client has sent nothing for 15 minutes")
        await expect(page.locator("#notice")).to_contain_text("Paused, because the conversation was idle")
        await expect(page.locator("#phase")).to_have_text("Not started")
        await asyncio.sleep(1)
        assert len(script.sockets) == 1
        await type_message(page, "And now?")
        await script.connection(2)
        await script.begin("s2")
        await script.gets("conversation.item.create", "conversation.item.create", RESPOND)
        await expect(page.locator("#notice")).to_be_hidden()


async def test_an_idle_page_stays_connected_for_its_alarms(chromium: str) -> None:
    async with scripted(chromium) as (page, script):
        await type_message(page, "Hello")
        await script.connection(1)
        await script.begin("s1")
        script.event("rejoinder.alarms", alarms=[{"kind": "timer", "text": "tea", "due_in_s": 600}])
        await expect(page.locator("#alarms li")).to_contain_text("Tea timer")
        await script.end(1001, "idle_timeout", "the client has sent nothing for 15 minutes")
        await script.connection(2)


async def test_the_page_says_why_the_server_ended_the_connection(chromium: str) -> None:
    async with scripted(chromium) as (page, script):
        await type_message(page, "Hello")
        await script.connection(1)
        await script.end(1013, "too_many_conversations", "the server already has as many conversations as it may (2)")
        message = "The server already has as many conversations as it may (2). Trying again…"
        await expect(page.locator("#notice")).to_have_text(message)
        await script.connection(2)
        script.event("error", error={"code": "item_id_taken", "message": "there is such an item"})
        await script.sockets[-1].close(code=1012)
        await expect(page.locator("#notice")).to_have_text("The connection to the server is lost. Trying again…")


async def test_m_mutes_with_caps_lock_and_not_as_a_shortcut_of_the_browser(chromium: str) -> None:
    async with scripted(chromium) as (page, script):
        await talk(page, script)
        for key, muted in (("M", "true"), ("Control+m", "true"), ("Alt+m", "true"), ("Meta+m", "true"), ("m", "false")):
            await page.keyboard.press(key)
            await expect(page.locator("#mute")).to_have_attribute("aria-pressed", muted)


async def test_an_alarm_shows_its_minute_although_the_clocks_differ(chromium: str) -> None:
    async with scripted(chromium) as (page, _):
        expected = await page.evaluate("""() => {
            const due = new Date();
            due.setHours(due.getHours() + 2, 0, 0, 0);
            const due_in_s = (due - Date.now()) / 1000 - 2; // the server's clock is two seconds ahead
            const detail = { alarms: [{ kind: "alarm", text: "", due_in_s }] };
            rejoinder.realtime.dispatchEvent(new CustomEvent("rejoinder.alarms", { detail }));
            return due.toLocaleTimeString([], { hour: "numeric", minute: "2-digit" });
        }""")
        await expect(page.locator("#alarms li")).to_contain_text(expected)


def answer(script: Script, number: int, text: str, *, done: bool = True) -> None:
    """A response of the server, in writing."""
    response = {"response_id": f"r{number}"}
    script.event("response.created", response={"id": f"r{number}"})
    script.event("response.output_item.added", **response, item={"id": f"item_{number}", "type": "message"})
    script.event("response.output_text.delta", **response, delta=text)
    if done:
        script.event("response.done", response={"id": f"r{number}", "status": "completed", "output": []})


async def test_whoever_scrolls_back_stays_there_until_they_write(chromium: str) -> None:
    async with scripted(chromium) as (page, script):
        await type_message(page, "Hello")
        await script.connection(1)
        await script.begin("s1")
        for number in range(20):
            answer(script, number, "A long answer. " * 10)
        await expect(page.locator("#talk .assistant")).to_have_count(20)
        box = page.locator(".conversation")
        await page.wait_for_function("document.querySelector('.conversation').scrollTop > 500")
        await box.evaluate("(box) => box.scrollTo(0, 100)")
        await asyncio.sleep(0.3)
        answer(script, 20, "Another one.")
        await expect(page.locator("#talk .assistant")).to_have_count(21)
        await asyncio.sleep(0.3)
        assert await box.evaluate("(box) => box.scrollTop") == 100
        await type_message(page, "And now?")
        await page.wait_for_function("document.querySelector('.conversation').scrollTop > 500")


async def test_two_clicks_on_stop_end_the_session_once(chromium: str) -> None:
    async with scripted(chromium) as (page, script):
        await talk(page, script)
        await page.locator("#start").dblclick()
        await expect(page.locator("#start")).to_have_text("Start talking")
        await expect(page.locator("#start")).to_be_enabled()
        await expect(page.locator("#phase")).to_have_text("Not started")
        await expect(page.locator("#notice")).to_be_hidden()
        assert len(script.sockets) == 1


async def test_what_is_typed_is_sent_and_stop_stops_although_no_sound_can_be_played(chromium: str) -> None:
    async with scripted(chromium) as (page, script):
        await talk(page, script)
        await page.evaluate("""async () => {
            rejoinder.loudspeaker.play("item", new Int16Array(48000).fill(100));
            await rejoinder.loudspeaker.context.suspend();
        }""")
        await type_message(page, "Hello")
        await wait_until(lambda: RESPOND in script.types)
        await page.click("#start")
        await expect(page.locator("#phase")).to_have_text("Not started")


async def test_words_that_are_not_final_go_with_the_connection(chromium: str) -> None:
    async with scripted(chromium) as (page, script):
        await talk(page, script)
        answer(script, 1, "It is ", done=False)
        script.event("rejoinder.draft", response_id="r1", committed="It is ", draft="noon.", denoised="",
                     origin="diffusion", step=1)  # fmt: skip
        script.event("rejoinder.transcript", item_id="u1", stable="What is", unstable="the")
        await expect(page.locator("#talk .assistant p")).to_have_text("It is noon.")
        await expect(page.locator("#talk .user p")).to_have_text("What is the")
        await script.sockets[-1].close(code=1012)
        await expect(page.locator("#talk .user")).to_have_count(0)
        await expect(page.locator("#talk .assistant p.interrupted")).to_have_text("It is ")


async def test_a_setting_that_changes_during_a_response_changes_neither_phase_nor_notice(chromium: str) -> None:
    async with scripted(chromium) as (page, script):
        await talk(page, script)
        script.event("rejoinder.phase", phase="answering")
        await expect(page.locator("#phase")).to_have_text("Responding")
        script.event("error", error={"code": "other", "message": "Something is wrong."})
        script.event("session.updated", session={"id": "s1"})
        await asyncio.sleep(0.3)
        await expect(page.locator("#phase")).to_have_text("Responding")
        await expect(page.locator("#notice")).to_have_text("Something is wrong.")


# The dictation and the captions.


@pytest.mark.parametrize("outcome", ["clean", "failed", "silent", "empty", "lost"])
async def test_stopping_a_dictation_waits_for_the_last_words(chromium: str, outcome: str) -> None:
    async with scripted(chromium, "dictation.html") as (page, script):
        await talk(page, script)
        script.event("input_audio_buffer.committed", item_id="i1")
        script.event("rejoinder.transcript", item_id="i2", stable="the meeting is", unstable="on Tuesday")
        await expect(page.locator("#text")).to_have_text("the meeting is on Tuesday")
        await page.click("#start")
        await script.gets(COMMIT)
        await expect(page.locator("#phase")).to_have_text("Finishing…")
        script.event(COMPLETED, item_id="i1", transcript="Dear Bob.")
        script.event("rejoinder.clean", item_ids=["i1"], raw="Dear Bob.", text="Dear Bob,")
        await expect(page.locator("#text")).to_contain_text("Dear Bob,")
        assert script.closed == [None]
        if outcome == "empty":
            script.event("error", error={"code": "input_audio_buffer_commit_empty", "message": "it is empty"})
        elif outcome == "lost":
            await script.sockets[-1].close(code=1012)
        else:
            script.event("input_audio_buffer.committed", item_id="i2")
            if outcome == "failed":
                error = {"code": "transcription_failed", "message": "the recognizer failed"}
                script.event("conversation.item.input_audio_transcription.failed", item_id="i2", error=error)
            else:
                raw = "The meeting is on Tuesday." if outcome == "clean" else ""
                script.event(COMPLETED, item_id="i2", transcript=raw)
                if raw:
                    assert script.closed == [None]
                    script.event("rejoinder.clean", item_ids=["i2"], raw=raw, text=raw)
        await expect(page.locator("#phase")).to_have_text("Stopped", timeout=4000)
        await expect(page.locator("#start")).to_have_text("Start dictating")
        await asyncio.sleep(0.7)
        assert len(script.sockets) == 1
        shown = "Dear Bob, The meeting is on Tuesday." if outcome == "clean" else "Dear Bob,"
        assert await page.evaluate("dictation.dictated()") == shown
        if outcome == "lost":
            await expect(page.locator("#notice")).to_contain_text("lost before the last words were transcribed")
        else:
            await wait_until(lambda: script.closed == [1000])
            await expect(page.locator("#notice")).to_be_hidden()


async def test_stopping_does_not_wait_for_ever(chromium: str) -> None:
    async with scripted(chromium, "captions.html") as (page, script):
        await talk(page, script)
        await page.click("#start")
        await script.gets(COMMIT)
        await wait_until(lambda: script.closed == [1000])
        await expect(page.locator("#phase")).to_have_text("Stopped")


async def test_text_that_was_cleared_does_not_come_back_and_copy_gets_its_name_back(chromium: str) -> None:
    async with scripted(chromium, "dictation.html") as (page, script):
        await talk(page, script)
        script.event(COMPLETED, item_id="i1", transcript="A secret thing.")
        script.event("rejoinder.transcript", item_id="i2", stable="and", unstable="more")
        await expect(page.locator("#text")).to_have_text("A secret thing. and more")
        await page.click("#copy")
        await expect(page.locator("#copy")).to_have_text("Copied")
        await page.click("#copy")
        await page.click("#clear")
        await expect(page.locator("#text")).to_have_text("")
        script.event("rejoinder.clean", item_ids=["i1"], raw="A secret thing.", text="A secret thing.")
        script.event(COMPLETED, item_id="i3", transcript="Hello.")
        await expect(page.locator("#text")).to_have_text("Hello.")
        await asyncio.sleep(3)
        await expect(page.locator("#copy")).to_have_text("Copy")


@pytest.mark.parametrize("path", ["captions.html", "dictation.html"])
@pytest.mark.parametrize(
    ("code", "notice"),
    [
        ("key_revoked", "the key was revoked"),
        ("api_key_required", "Enter it under Settings on the conversation page, then start again."),
        (None, "The server refused the connection: no reason given"),
    ],
)
async def test_a_refusal_stops_the_recording_and_is_shown(
    chromium: str, path: str, code: str | None, notice: str
) -> None:
    async with scripted(chromium, path) as (page, script):
        await page.evaluate("""() => {
            const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
            navigator.mediaDevices.getUserMedia = async (constraints) => (window.stream = await open(constraints));
        }""")
        await talk(page, script)
        if code is None:
            await script.sockets[-1].close(code=1008)
        else:
            await script.end(1008, code, "the key was revoked")
        await expect(page.locator("#phase")).to_have_text("Stopped")
        await expect(page.locator("#notice")).to_contain_text(notice)
        await expect(page.locator("#start")).to_contain_text("Start")
        assert await page.evaluate("stream.getTracks().every((track) => track.readyState === 'ended')")


def caption(item_id: str, stable: str, provisional: str = "", start: float = 1.0) -> dict[str, Any]:
    """A caption whose words are half a second long."""
    words = [
        {"word": word, "start": start + n / 2, "end": start + (n + 1) / 2, "confidence": 1.0}
        for n, word in enumerate(f"{stable} {provisional}".split())
    ]
    count = len(stable.split())
    return {"item_id": item_id, "first": 0, "stable": words[:count], "provisional": words[count:], "final": False}


async def test_captions_forget_provisional_words_and_go_on_in_time_after_a_lost_connection(chromium: str) -> None:
    async with scripted(chromium, "captions.html") as (page, script):
        await talk(page, script)
        script.event("rejoinder.caption", **caption("i0", "", "Well"))
        script.event("rejoinder.caption", **caption("i1", "Hello", "every"))
        await expect(page.locator("#live")).to_have_text("Hello Well every")
        await script.sockets[-1].close(code=1012)
        await expect(page.locator("#live")).to_have_text("Hello")
        await script.connection(2)
        await asyncio.sleep(1)
        await script.begin("s1", "token")
        script.event("rejoinder.caption", **caption("i1", "Hello all"))  # its audio came before
        script.event("rejoinder.caption", **caption("i2", "Now the", "news"))
        await expect(page.locator("#live")).to_have_text("Hello all Now the news")
        starts = await page.evaluate("captions.text.words.map(({ start }) => start)")
        assert starts[:2] == [1.0, 1.5] and 2.3 < starts[2] < HANG_S
        await page.click("#start")
        await script.gets(COMMIT)
        script.event("error", error={"code": "input_audio_buffer_commit_empty", "message": "it is empty"})
        await expect(page.locator("#live")).to_have_text("Hello all Now the")
