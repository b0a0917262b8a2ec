"""The page in a browser behind the interface of a Realtime connection, so that the report measures both with the same
client.

The scripts in `browser/` speak into the page's microphone and listen to its loudspeaker. They report moments on the
page's audio clock, in ms since 1970; the client's own clock is `time.monotonic`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import numpy as np

from lab.report.chromium import open_page, page_address
from lab.report.realtime_client import RealtimeClient
from lab.simulator.errors import ServerUnavailable
from lab.simulator.player import Player
from voice.audio.codec import Samples, to_pcm16


class Evaluates(Protocol):
    """The part of `playwright.async_api.Page` that the client uses."""

    async def evaluate(self, expression: str, arg: Any = None) -> Any: ...


class PageSocket:
    """The client's connection to the page, a `realtime_client.Socket`.

    Args:
        reports: of the page, each a JSON object.
    """

    def __init__(self, page: Evaluates, reports: asyncio.Queue[str]) -> None:
        self._page, self._reports = page, reports

    async def send(self, message: str, /) -> None:
        """Have the page cancel a response. It configures its session and sends its audio itself."""
        if json.loads(message)["type"] == "response.cancel":
            await self._page.evaluate("rejoinderReport.cancelResponse()")

    async def recv(self) -> str:
        """The next report."""
        return await self._reports.get()


class PageMicrophone:
    """The microphone of the page, a `realtime_client.TurnMicrophone`.

    Attributes:
        max_lateness_s: how far the audio thread fell behind its clock while the latest recording was spoken.
    """

    def __init__(self, page: Evaluates, clock_offset_s: float) -> None:
        self._page, self._clock_offset_s = page, clock_offset_s
        self._starts: list[asyncio.Future[float]] = []
        self.max_lateness_s = 0.0

    async def run(self) -> None:
        """The page runs it."""

    async def play(self, samples: Samples, at: float | None = None) -> float:
        """Play audio from the next audio block on, or from `at`; overlapping audio is mixed.

        Returns:
            The time of the first sample, on `time.monotonic`.
        """
        start: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self._starts.append(start)
        moment = None if at is None else 1000 * (at + self._clock_offset_s)
        clip = {"id": len(self._starts) - 1, "at": moment, "pcm": _base64(samples)}
        await self._page.evaluate("(clip) => rejoinderReport.play(clip)", clip)
        return await start

    async def set_background(self, background: Samples | None) -> None:
        """Loop a background sound under everything from now on; None ends it."""
        pcm = None if background is None else _base64(background)
        await self._page.evaluate("(pcm) => rejoinderReport.setBackground(pcm)", pcm)

    def on_started(self, clip: int, at: float) -> None:
        """The page has scheduled the first sample of a recording."""
        self._starts[clip].set_result(at)


class PageClient(RealtimeClient):
    """One conversation through the page.

    Args:
        page: has just started a conversation.
        reports: of the page, each a JSON object.
        clock_offset_s: from `time.monotonic` to `time.time`, which is also the page's clock.
    """

    def __init__(self, page: Evaluates, reports: asyncio.Queue[str], clock_offset_s: float) -> None:
        self._page_microphone = PageMicrophone(page, clock_offset_s)
        super().__init__(PageSocket(page, reports), microphone=self._page_microphone)
        self._page, self._clock_offset_s = page, clock_offset_s

    async def _on_event(self, arrived: float, event: dict[str, Any]) -> None:
        """Handle a report of the page; `event` has the fields that `browser/inject.js` gives it."""
        at = self._moment(event["at"])
        match event["kind"]:
            case "event" if event["event"]["type"] == "input_audio_buffer.speech_started":
                self._last_speech_started = at  # the page stops its loudspeaker itself
            case "event":
                await super()._on_event(at, event["event"])
            case "started":
                self._page_microphone.on_started(event["id"], at)
            case "ended":
                microphone = self._page_microphone
                microphone.max_lateness_s = max(microphone.max_lateness_s, event["late_ms"] / 1000)
                if self._observation is not None and self._observation.overlap_start is None:
                    self._observation.speech_end = at
            case "queued" if self._observation is not None and event["response_id"] in self._responses:
                silence = np.zeros(event["samples"], np.float32)
                chunk = self._player.push(at, event["response_id"], event["item_id"], silence)
                chunk.arrived = self._moment(event["arrived"])
            case "audible":
                mark_audible(self._player, at, self._moment(event["until"]))
            case "stopped":
                self._player.clear(at)
            case "lost":
                raise ServerUnavailable(f"the page lost its connection ({event['reason'] or 'no reason given'})")

    async def _stop_playback(self, at: float) -> None:
        """Have the page stop its loudspeaker. It reports when that happened."""
        if self._player.end > at:
            await self._page.evaluate("rejoinderReport.stopPlayback()")

    def _moment(self, ms: float) -> float:
        return ms / 1000 - self._clock_offset_s


def mark_audible(player: Player, first: float, last: float) -> None:
    """Record that the loudspeaker played audible samples between two moments, in the chunk that was playing.

    Args:
        player: knows when each chunk is played, but not what is in it.
    """
    chunk = next((chunk for chunk in reversed(player.chunks) if chunk.start <= last), None)
    if chunk is not None:
        chunk.audible = (chunk.audible[0] if chunk.audible else first, last)


@asynccontextmanager
async def connect_page(url: str, api_key: str | None = None, browser: str | None = None) -> AsyncIterator[PageClient]:
    """A client on a page of its own, in a browser of its own, with its microphone open.

    Args:
        url: the Realtime endpoint of the server that has the page.
        browser: path of the browser; None for Playwright's own.

    Raises:
        BrowserUnavailable: the browser does not start.
        ServerUnavailable: the page cannot be opened, or cannot start a conversation.
    """
    reports = asyncio.Queue[str]()

    def on_reports(batch: list[str]) -> None:
        for report in batch:
            reports.put_nowait(report)

    async with open_page(page_address(url), on_reports, api_key=api_key, browser=browser) as page:
        client = PageClient(page, reports, time.time() - time.monotonic())
        try:
            await client.open()
            yield client
        finally:
            await client.close()


def _base64(samples: Samples) -> str:
    return base64.b64encode(to_pcm16(samples)).decode("ascii")
