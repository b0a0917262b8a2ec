"""The page's connection drops in the middle of a response: Chromium, a real server with fake models, and a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from playwright.async_api import expect

from server.access.admission import Admission
from tests.e2e.conftest import write_recording
from tests.e2e.test_page import page_with, wait_for
from tests.e2e.test_page_calls import recording
from tests.fakes import FakeLanguageModel, LoudnessDetector
from tests.real_time import retried_under_load, wait_until
from tests.server.live_server import serving
from voice import session


class Proxy:
    """Passes bytes on until `cut` resets every connection, as a network that fails does."""

    def __init__(self, address: str) -> None:
        self._host, port = address.split(":")
        self._port = int(port)
        self._writers: set[asyncio.StreamWriter] = set()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection."""
        inner_reader, inner_writer = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, inner_writer}
        with suppress(OSError):
            await asyncio.gather(self._carry(reader, inner_writer), self._carry(inner_reader, writer))
        self._writers -= {writer, inner_writer}

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()

    def cut(self) -> None:
        """Reset all connections."""
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def proxy_to(address: str) -> AsyncIterator[tuple[Proxy, str]]:
    proxy = Proxy(address)
    async with await asyncio.start_server(proxy.accept, "127.0.0.1") as server:
        yield proxy, "http://{}:{}".format(*server.sockets[0].getsockname())
        proxy.cut()


@retried_under_load(attempts=3)
async def test_the_page_returns_to_its_conversation_within_five_seconds(
    chromium: str, microphone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)
    write_recording(microphone, recording(1.0, 7.0))
    model = FakeLanguageModel([f" word{n}" for n in range(60)])
    admission = Admission(1)  # the page comes back to the slot that it kept
    with serving(new_language_model=lambda: model, admission=admission) as address:
        async with proxy_to(address) as (proxy, url), page_with(chromium, microphone, url) as page:
            await page.click("#start")
            await wait_for(page, "response.output_audio.delta", 3)
            await asyncio.sleep(1)  # until some words were heard
            proxy.cut()
            await expect(page.locator("#notice")).to_contain_text("connection to the server is lost")
            async with asyncio.timeout(5):
                await wait_for(page, "rejoinder.resumed")
            created = await wait_for(page, "session.created", 2)
            (resumed,) = await wait_for(page, "rejoinder.resumed")
            await expect(page.locator("#notice")).to_be_hidden()
            await expect(page.locator("#talk .assistant .interrupted")).to_be_visible()
            heard = await page.locator("#talk .assistant p").first.inner_text()
            await wait_for(page, "response.done")  # of the question after it; that of the first was lost
            added = [event["item"] for event in await wait_for(page, "conversation.item.added", 4)]
            await page.click("#start")  # stop
            await wait_until(lambda: not admission.slots)  # nothing waits for a page whose user has left
    assert created[0]["session"]["id"] == created[1]["session"]["id"]
    assert [item["role"] for item in resumed["items"]] == ["user", "assistant"]
    assert heard == resumed["items"][1]["content"][0]["transcript"].strip()
    assert 0 < len(heard.split()) < 60
    # The two turns: the page restored nothing that the server still had. Its tools are an item as well.
    assert [item["role"] for item in added if item["type"] == "message"] == ["user", "assistant"] * 2
    contents = [message.content.strip() for message in model.prompts[-1]]
    assert contents[1:3] == ["What is the capital of France?", heard]
