"""Opens the page in a headless Chromium, with the scripts that speak and listen in it. Needs Playwright."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from lab.simulator.errors import ServerUnavailable, without_query

if TYPE_CHECKING:
    from playwright.async_api import Page

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")

_FLAGS = (
    "--disable-gpu",
    "--disable-background-networking",
    "--use-fake-ui-for-media-stream",
    "--use-fake-device-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
)
"""The device is fake, so that every machine has a microphone. The page does not hear it."""

_START_TIMEOUT_S = 30.0

_STARTED = "() => rejoinder.realtime.open || !document.getElementById('notice').hidden"

_NOTICE = "() => document.getElementById('notice').textContent"

_SET_API_KEY = "(key) => { document.getElementById('api-key').value = key; }"

_SCHEMES = {"ws": "http", "wss": "https"}


class BrowserUnavailable(ValueError):
    """There is no browser, or nothing to drive it; the message says what to install."""


def find_browser(path: Path | None = None) -> str | None:
    """Path of Chromium or Chrome; None if only Playwright may have brought one.

    Args:
        path: the browser that the user has chosen.

    Raises:
        BrowserUnavailable: Playwright is not installed, or there is no such file.
    """
    if find_spec("playwright") is None:
        raise BrowserUnavailable('--page needs Playwright, which is not installed: pip install -e ".[page]"')
    if path is not None and not path.is_file():
        raise BrowserUnavailable(f"there is no browser {path}: --browser needs the path of Chromium or Chrome")
    return str(path) if path else next(filter(None, map(shutil.which, _NAMES)), None)


def page_address(url: str) -> str:
    """The address of the page on the server of a Realtime endpoint.

    Raises:
        ServerUnavailable: this is not the URL of a websocket.
    """
    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES or not parts.netloc:
        raise ServerUnavailable(
            f"{without_query(url)} is not a websocket URL: it should look like ws://127.0.0.1:8000/v1/realtime"
        )
    return urlunsplit((_SCHEMES[parts.scheme], parts.netloc, parts.path.removesuffix("v1/realtime") or "/", "", ""))


@asynccontextmanager
async def open_page(
    address: str, on_reports: Callable[[list[str]], None], *, api_key: str | None = None, browser: str | None = None
) -> AsyncIterator[Page]:
    """The page in a browser of its own, with a conversation that has just been started.

    Args:
        on_reports: called with reports from `browser/inject.js`, each a JSON object.
        browser: path of the browser; None for the one that Playwright has installed.

    Raises:
        BrowserUnavailable: the browser does not start.
        ServerUnavailable: the page cannot be opened, or cannot start a conversation.
    """
    from playwright.async_api import Error, async_playwright

    async with async_playwright() as playwright:
        try:
            chromium = await playwright.chromium.launch(executable_path=browser, args=_FLAGS)
        except Error as error:
            raise BrowserUnavailable(
                f"{browser or 'Chromium'} does not start ({_first_line(error)}): install Chromium, or name another "
                "browser with --browser PATH"
            ) from None
        try:
            # The page's content security policy does not know of the injected worklet.
            context = await chromium.new_context(bypass_csp=True)
            page = await context.new_page()
            await page.expose_function("sendReports", on_reports)
            await page.add_init_script(_injected_script())
            await _start_conversation(page, address, api_key)
            yield page
        except Error as error:
            raise ServerUnavailable(f"the page {address} failed in the browser: {_first_line(error)}") from None
        finally:
            await chromium.close()


async def _start_conversation(page: Page, address: str, api_key: str | None) -> None:
    timeout_ms = 1000 * _START_TIMEOUT_S
    await page.goto(address, timeout=timeout_ms)
    await page.wait_for_function("window.rejoinder", timeout=timeout_ms)
    await page.evaluate("rejoinderReport.attach()")
    if api_key:
        await page.evaluate(_SET_API_KEY, api_key)
    await page.click("#start")
    await page.wait_for_function(_STARTED, timeout=timeout_ms)
    if notice := await page.evaluate(_NOTICE):
        raise ServerUnavailable(f"the page {address} does not start a conversation: {notice}")


def _injected_script() -> str:
    folder = files("lab.report") / "browser"
    worklet = base64.b64encode((folder / "worklet.js").read_bytes()).decode("ascii")
    address = json.dumps(f"data:text/javascript;base64,{worklet}")
    return f"const REPORT_WORKLET = {address};\n{(folder / 'inject.js').read_text(encoding='utf-8')}"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
