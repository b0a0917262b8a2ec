"""The states that the pages can get into, each reached with scripted server events: for screenshots, and for the tests
that look at each of them. Neither models nor microphones are needed.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
import uvicorn
from playwright.async_api import Browser, Page, Route, WebSocketRoute, async_playwright
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from server.security_headers import SecurityHeaders
from voice.audio.codec import OUTPUT_RATE, to_pcm16

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--autoplay-policy=no-user-gesture-required",
]

MODEL = "qwen2.5-coder-1.5b"

HEALTH = {"status": "ok", "model": MODEL, "voices": ["en_US-joe-medium", "en_US-amy-medium"]}

_TIMEOUT_S = 60
"""For a state to be reached, on a busy machine."""

_SILENCE = "return new AudioContext().createMediaStreamDestination().stream"
_REFUSED = "throw new DOMException('', '{}')"

_WITHOUT_SOUND = """
window.AudioContext = class extends AudioContext {
  constructor(options) {
    super(options);
    this.suspend();
  }
  async resume() {}
};
"""
"""Audio that nobody hears would take most of the processor's time."""


LOOKS: dict[str, tuple[tuple[int, int], Literal["light", "dark"]]] = {
    "wide": ((1024, 720), "light"),
    "wide-dark": ((1024, 720), "dark"),
    "phone": ((360, 740), "light"),
    "phone-dark": ((360, 740), "dark"),
}
"""Width and height in pixels, and colours."""


class Stage:
    """A page and the server that it is connected to. States follow one another on it.

    Attributes:
        health: what the server answers to `/healthz`; None if it does not answer.
        error: what the server answers to whoever connects; empty for a session.
        gone: whether the server answers nobody who connects.
    """

    health: dict[str, Any] | None
    error: str
    gone: bool

    def __init__(self, page: Page, address: str) -> None:
        self.page, self._address = page, address
        self._socket: WebSocketRoute | None = None
        self._configured = asyncio.Event()

    async def show(self, state: Callable[[Stage], Awaitable[None]]) -> None:
        """Bring the page into a state."""
        self.health, self.error, self.gone = HEALTH, "", False
        self._configured.clear()
        await state(self)

    async def open(self, path: str = "", microphone: str = _SILENCE, *, sound: bool = False) -> None:
        """Open a page of the server.

        Args:
            microphone: JavaScript that takes the place of `getUserMedia`.
            sound: whether audio is played and recorded.
        """
        await self.page.goto(f"{self._address}{path}")
        await self.holds("window.rejoinder ?? window.captions ?? window.dictation")  # its modules have run
        script = f"navigator.mediaDevices.getUserMedia = async () => {{ {microphone} }};"
        await self.page.evaluate(f"() => {{ {script if sound else script + _WITHOUT_SOUND} }}")

    async def start(self) -> None:
        """Press the start button, and wait until the session is configured."""
        await self.page.click("#start")
        async with asyncio.timeout(_TIMEOUT_S):
            await self._configured.wait()

    async def talk(self) -> None:
        """Open the page and start."""
        await self.open()
        await self.start()

    async def look(self, name: str) -> None:
        """Show the page in one of the `LOOKS`."""
        size, colors = LOOKS[name]
        await self.page.set_viewport_size({"width": size[0], "height": size[1]})
        await self.page.emulate_media(color_scheme=colors)

    def send(self, kind: str, **fields: Any) -> None:
        """Send a server event."""
        assert self._socket is not None
        self._socket.send(json.dumps({"type": kind, **fields}))

    async def lose(self) -> None:
        """Close the connection."""
        assert self._socket is not None
        await self._socket.close(code=1012)

    async def holds(self, condition: str) -> None:
        """Wait until a JavaScript expression is true. `wait_for_function` needs an eval, which the page forbids."""
        poll = f"const poll = () => ({condition}) ? done() : setTimeout(poll, 20)"
        async with asyncio.timeout(_TIMEOUT_S):
            await self.page.evaluate(f"() => new Promise((done) => {{ {poll}; poll(); }})")

    async def shown(self, selector: str, text: str) -> None:
        """Wait until an element is visible and contains a text."""
        await self.page.locator(selector).filter(has_text=text).first.wait_for()

    async def answer_health(self, route: Route) -> None:
        """Answer to `/healthz`."""
        if self.health is None:
            await route.abort()
        else:
            await route.fulfill(json=self.health)

    async def accept(self, socket: WebSocketRoute) -> None:
        """Accept a connection of the page."""
        if self.gone:
            return
        self._socket = socket
        socket.on_message(self._receive)
        if self.error:
            self.send("error", error={"type": "invalid_request_error", "code": self.error, "message": self.error})
            await socket.close(code=1008, reason=self.error)
        else:
            self.send("session.created", session={"id": "sess_1", "model": MODEL})

    def _receive(self, message: str | bytes) -> None:
        if json.loads(message)["type"] == "session.update":
            self.send("session.updated", session={})
            self.send("rejoinder.phase", phase="listening")
            self._configured.set()

    # Parts of conversations.

    def hear(self, item: str, stable: str, unstable: str = "") -> None:
        """The user is speaking."""
        self.send("rejoinder.phase", phase="user_speaking")
        self.send("rejoinder.transcript", item_id=item, stable=stable, unstable=unstable)

    def heard(self, item: str, text: str) -> None:
        """The user has spoken."""
        self.send("conversation.item.input_audio_transcription.completed", item_id=item, transcript=text)
        self.send("rejoinder.phase", phase="thinking")

    def draft(self, response: str, committed: str, draft: str) -> None:
        """A step of a response, which begins with the first one."""
        self.send("rejoinder.draft", response_id=response, committed=committed, draft=draft, denoised="",
                  origin="diffusion", step=1, confidence=[])  # fmt: skip

    def begin(self, response: str) -> None:
        """A response begins."""
        self.send("response.created", response={"id": response})
        message = {"id": f"{response}_message", "type": "message"}
        self.send("response.output_item.added", response_id=response, item=message)

    def speak(self, response: str, text: str, seconds: float = 0.0) -> None:
        """Text of a response, and a quiet tone for its audio."""
        item = {"response_id": response, "item_id": f"{response}_message"}
        self.send("rejoinder.phase", phase="answering")
        self.send("response.output_audio_transcript.delta", delta=text, **item)
        if seconds:
            words, each = text.split(), 1000 * seconds / len(text.split())
            times = [{"word": word, "start_ms": n * each, "end_ms": (n + 1) * each} for n, word in enumerate(words)]
            self.send("rejoinder.words", words=times, **item)
            mouth = {"viseme": "aa", "azure_id": 2, "start_ms": 0, "end_ms": 1000 * seconds}
            self.send("rejoinder.visemes", visemes=[mouth], **item)
            tone = (0.02 * np.sin(np.arange(int(seconds * OUTPUT_RATE)) / 20)).astype(np.float32)
            self.send("response.output_audio.delta", delta=base64.b64encode(to_pcm16(tone)).decode(), **item)

    def done(self, response: str, text: str, status: str = "completed", **turn: Any) -> None:
        """A response has ended, with its text as it was heard."""
        item = f"{response}_message"
        output = [{"id": item, "type": "message", "content": [{"type": "output_audio", "transcript": text}]}]
        self.send("response.done", response={"id": response, "status": status, "output": output})
        stages = {"soft_end": 128, "transcription": 96, "first_token": 74, "first_clause": 118, "synthesis": 131}
        details = {"latency_ms": 547, "stages_ms": stages, "decided": [{"policy": "model", "reason": "a question"}],
                   "drafted_by": ["diffusion"], "drafts_shown": 14, "drafts_kept": 11, **turn}  # fmt: skip
        self.send("rejoinder.turn", response_id=response, item_id=item, **details)
        self.send("rejoinder.phase", phase="listening")

    def exchange(self, number: int, question: str, answer: str, **turn: Any) -> None:
        """A whole turn."""
        self.heard(f"user_{number}", question)
        self.begin(f"response_{number}")
        self.speak(f"response_{number}", answer)
        self.done(f"response_{number}", answer, **turn)


# The states.


async def first_visit(stage: Stage) -> None:
    await stage.open()
    await stage.shown("#model", MODEL)


async def starting(stage: Stage) -> None:
    stage.health = {"status": "ok", "starting": "The language model is tried on this machine."}
    await stage.open()
    await stage.shown("#starting", "tried")


async def asking_for_the_microphone(stage: Stage) -> None:
    await stage.open(microphone="await new Promise(() => {})")
    await stage.page.click("#start")
    await stage.shown("#phase", "Allow")


async def microphone_denied(stage: Stage) -> None:
    await stage.open(microphone=_REFUSED.format("NotAllowedError"))
    await stage.page.click("#start")
    await stage.shown("#notice", "denied")


async def no_microphone(stage: Stage) -> None:
    await stage.open(microphone=_REFUSED.format("NotFoundError"))
    await stage.page.click("#start")
    await stage.shown("#notice", "no microphone")


async def silent_microphone(stage: Stage) -> None:
    await stage.open(sound=True)
    await stage.start()
    await stage.page.evaluate("() => { performance.now = () => 60_000; }")
    await stage.shown("#notice", "silence")


async def listening(stage: Stage) -> None:
    await stage.talk()
    await stage.shown("#phase", "Listening")


async def users_words_provisional(stage: Stage) -> None:
    await stage.talk()
    stage.hear("user_1", "What is the", "capital of France")
    await stage.shown("#talk .user", "France")


async def drafts_settling(stage: Stage) -> None:
    await stage.talk()
    stage.heard("user_1", "What is the capital of France?")
    stage.begin("response_1")
    stage.draft("response_1", "The capital of France", " is Paris, a city of two million")
    await stage.shown("#talk .assistant", "million")


async def speaking(stage: Stage) -> None:
    await stage.open(sound=True)
    await stage.page.click(".settings summary")
    await stage.page.check("#show-face")
    await stage.page.click(".settings summary")
    await stage.start()
    stage.heard("user_1", "What is the capital of France?")
    stage.begin("response_1")
    stage.speak("response_1", "The capital of France is Paris.", seconds=4.0)
    await stage.shown("#talk .assistant", "Paris")
    await stage.holds("CSS.highlights.has('spoken')")


async def interrupted(stage: Stage) -> None:
    await stage.talk()
    stage.heard("user_1", "Tell me a story about a fox.")
    stage.begin("response_1")
    stage.speak("response_1", "Once there was a fox who lived at the edge of a dark wood.")
    stage.done("response_1", "Once there was a fox", status="cancelled")
    stage.hear("user_2", "Stop, what is", "two plus two")
    await stage.shown("#talk .user", "two plus")


async def waterfall_open(stage: Stage) -> None:
    await stage.talk()
    stage.exchange(1, "What is the capital of France?", "The capital of France is Paris.")
    await stage.page.click(".latency summary")
    await stage.shown(".latency .drafted", "kept")


async def tool_call_with_a_confirmation(stage: Stage) -> None:
    await stage.talk()
    stage.exchange(1, "Cancel my appointment tomorrow.", "Shall I cancel the appointment with Doctor Lee?")
    stage.heard("user_2", "Yes, please.")
    call = {"id": "call_1", "type": "mcp_call", "name": "cancel_appointment", "arguments": '{"with": "Doctor Lee"}'}
    stage.send("conversation.item.added", item=call)
    stage.send("conversation.item.done", item={**call, "output": "The appointment is cancelled."})
    running = {"id": "call_2", "type": "mcp_call", "name": "search_web", "arguments": '{"query": "dentists nearby"}'}
    stage.send("conversation.item.added", item=running)
    long = {"id": "call_3", "type": "mcp_call", "name": "list_appointments", "arguments": "{}"}
    stage.send("conversation.item.done", item={**long, "output": "Monday at nine: the dentist. " * 12})
    await stage.shown("#talk .call", "list appointments")


async def timer_running(stage: Stage) -> None:
    await stage.talk()
    stage.exchange(1, "Set a timer for two minutes.", "Your timer for 2 minutes is running.")
    alarms = [("timer", "", 118.2), ("timer", "pasta", 540), ("alarm", "", 30_000), ("reminder", "call mum", 90_000)]
    fields = [{"kind": kind, "text": text, "due_in_s": left} for kind, text, left in alarms]
    stage.send("rejoinder.alarms", alarms=fields)
    await stage.shown("#alarms li", "call mum")


async def sources_open(stage: Stage) -> None:
    await stage.talk()
    stage.heard("user_1", "How do I turn the heating on?")
    stage.begin("response_1")
    passage = {"title": "House manual", "location": "house.md, Heating, page 2",
               "text": "The heating is turned on at the panel in the hall.\nIt takes an hour."}  # fmt: skip
    stage.send("rejoinder.sources", response_id="response_1", item_id="response_1_message", sources=[passage])
    stage.speak("response_1", "According to the House manual, at the panel in the hall.")
    stage.done("response_1", "According to the House manual, at the panel in the hall.")
    await stage.page.click(".sources summary")
    await stage.shown(".sources", "an hour")


async def long_conversation(stage: Stage) -> None:
    await stage.talk()
    for number in range(12):
        stage.exchange(number, f"What is {number} times {number}?", f"{number} times {number} is {number * number}.")
    await stage.shown("#talk .assistant", "121")


async def settings_open(stage: Stage) -> None:
    await stage.talk()
    await stage.page.click(".settings summary")
    await stage.page.check("#push-to-talk")
    await stage.shown("#hold", "Hold")


async def typed(stage: Stage) -> None:
    await stage.open(microphone=_REFUSED.format("NotFoundError"))
    await stage.page.fill("#typed", "What is the capital of France?")
    await stage.page.press("#typed", "Enter")
    await stage.shown("#talk .user", "France")
    stage.begin("response_1")
    stage.speak("response_1", "The capital of France is Paris.")
    stage.done("response_1", "The capital of France is Paris.", latency_ms=None, stages_ms={})
    await stage.shown("#phase", "Ready")


async def connection_lost(stage: Stage) -> None:
    await stage.talk()
    stage.exchange(1, "What is the capital of France?", "The capital of France is Paris.")
    await stage.shown("#talk .assistant", "Paris")
    stage.gone = True
    await stage.lose()
    await stage.shown("#notice", "lost")


async def server_gone(stage: Stage) -> None:
    stage.health = None
    await stage.open()
    await stage.shown("#starting", "does not answer")


async def key_required(stage: Stage) -> None:
    stage.health, stage.error = {"status": "ok"}, "invalid_api_key"
    await stage.open()
    await stage.page.click("#start")
    await stage.shown("#notice", "API key")


async def captions(stage: Stage) -> None:
    await stage.open("captions.html")
    await stage.start()
    words = [{"word": word, "start": n / 3, "end": (n + 1) / 3, "confidence": 0.9}
             for n, word in enumerate("Good morning everybody and welcome to the first talk".split())]  # fmt: skip
    stage.send("rejoinder.caption", item_id="user_1", first=0, stable=words, provisional=[], final=True)
    stage.send("rejoinder.caption", item_id="user_2", first=0, stable=words[:3], provisional=words[3:6], final=False)
    stage.send("rejoinder.listeners", captions="cap_1", ticket="ct_1", listeners=3)
    await stage.shown("#live", "welcome")


async def captions_without_a_microphone(stage: Stage) -> None:
    await stage.open("captions.html", microphone=_REFUSED.format("NotFoundError"))
    await stage.page.click("#start")
    await stage.shown("#notice", "no microphone")


async def dictation_not_started(stage: Stage) -> None:
    await stage.open("dictation.html")


async def dictation(stage: Stage) -> None:
    await stage.open("dictation.html")
    await stage.start()
    raw, text = "um let's meet on Tuesday no make that Wednesday", "Let's meet on Wednesday."
    stage.send("conversation.item.input_audio_transcription.completed", item_id="user_1", transcript=raw)
    stage.send("rejoinder.clean", item_ids=["user_1"], raw=raw, text=text, objection=None)
    stage.send("rejoinder.transcript", item_id="user_2", stable="I bring the", unstable="slides")
    await stage.shown("#text", "slides")


STATES: list[Callable[[Stage], Awaitable[None]]] = [
    first_visit, starting, asking_for_the_microphone, microphone_denied, no_microphone, silent_microphone, listening,
    users_words_provisional, drafts_settling, speaking, interrupted, waterfall_open, tool_call_with_a_confirmation,
    timer_running, sources_open, long_conversation, settings_open, typed, connection_lost, server_gone, key_required,
    captions, captions_without_a_microphone, dictation_not_started, dictation,
]  # fmt: skip
"""Each opens a page and brings it into the state of its name."""


# Where they are shown.


@asynccontextmanager
async def serving_files() -> AsyncIterator[str]:
    """Serve the page's files, with their headers, on a free port of this machine; yields the address."""
    pages = Mount("/", StaticFiles(directory=str(files("web")), html=True))
    app = Starlette(routes=[pages], middleware=[Middleware(SecurityHeaders)])
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off"))
    listener = socket.create_server(("127.0.0.1", 0))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        await running


@asynccontextmanager
async def chromium(path: str | None = None) -> AsyncIterator[Browser]:
    """Chromium from `path`, or the one that is installed."""
    path = path or os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        await browser.close()


@asynccontextmanager
async def stage_in(browser: Browser, address: str) -> AsyncIterator[Stage]:
    """A page in a browser context of its own, whose server is scripted."""
    context = await browser.new_context(service_workers="block")
    context.set_default_timeout(1000 * _TIMEOUT_S)
    stage = Stage(await context.new_page(), address)
    await stage.page.route("**/healthz", stage.answer_health)
    await stage.page.route_web_socket("**/v1/realtime", stage.accept)
    yield stage
    await context.close()


async def photograph(folder: Path, names: Sequence[str] = ()) -> None:
    """Write a picture of each state, or of those named, in each look, into `folder`, which is made if need be. Raises
    ValueError for a state that there is not."""
    states = {state.__name__: state for state in STATES}
    if unknown := set(names) - states.keys():
        raise ValueError(f"there is no state {', '.join(sorted(unknown))}; there are {', '.join(states)}")
    async with serving_files() as address, chromium() as browser, stage_in(browser, address) as stage:
        for name in names or states:
            await stage.show(states[name])
            for look in LOOKS:
                await stage.look(look)
                await stage.page.screenshot(path=folder / f"{name}-{look}.png")
