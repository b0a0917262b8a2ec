"""The page of a server that is not ready, or has no free slot, in Chromium."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import uvicorn
from playwright.async_api import expect

from server.access.admission import Admission
from server.serving.http_server import http_config
from tests.e2e.conftest import write_recording
from tests.e2e.test_page import page_with
from tests.e2e.test_page_calls import recording
from tests.real_time import HANG_S
from tests.server.live_server import connected, receive, serving
from tests.server.serving.test_starting import Loading


async def test_the_page_says_what_the_server_does_until_it_is_ready(chromium: str, microphone: Path) -> None:
    loading, listener = Loading(), socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(http_config(loading.app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        write_recording(microphone, recording(1.0, 7.0))
        async with page_with(chromium, microphone, f"http://127.0.0.1:{listener.getsockname()[1]}/") as page:
            await expect(page.locator("#starting")).to_have_text("The language model is tried.")
            await page.click("#start")
            await expect(page.locator("#phase")).to_have_text("Connecting…")
            assert loading.start.visited.wait(HANG_S)
            loading.go_on.set()
            await expect(page.locator("#starting")).to_be_hidden()
            await expect(page.locator("#phase")).not_to_have_text("Connecting…")
    finally:
        server.should_exit = True
        thread.join(HANG_S)


async def test_the_page_says_that_it_waits_for_a_free_line(chromium: str, microphone: Path) -> None:
    write_recording(microphone, recording(1.0, 7.0))
    with serving(admission=Admission(1)) as address:
        async with page_with(chromium, microphone, f"http://{address}/") as page, connected(address) as first:
            await receive(first, "session.created")
            await page.click("#start")
            await expect(page.locator("#phase")).to_have_text("Waiting for a free line…")
            await first.close()
            await expect(page.locator("#phase")).to_have_text("Listening")
