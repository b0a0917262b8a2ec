"""The dashboard in Chromium, with its content security policy, against a server with fake models."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import async_playwright, expect

from server.access.admission import Admission
from server.access.keys import ApiKeys, KeyStore
from server.auth import LocalAccess
from tests.fakes import LoudnessDetector
from tests.real_time import HANG_S
from tests.server.live_server import connected, serving, speak_one_turn
from voice import session

expect.set_options(timeout=1000 * HANG_S)


async def test_the_dashboard_shows_turns_to_an_admin_and_nothing_to_others(
    chromium: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "SpeechDetector", LoudnessDetector)
    store = KeyStore(tmp_path / "keys.sqlite")
    admin, user = store.add("root", admin=True), store.add("kitchen")
    with serving(admission=Admission(3, ApiKeys(store=store))) as address:
        async with (
            connected(address, additional_headers={"Authorization": f"Bearer {user}"}) as client,
            async_playwright() as playwright,
        ):
            await speak_one_turn(client)
            browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = await browser.new_page()
            errors: list[str] = []
            page.on(
                "console", lambda message: errors.append(message.text) if "Content Security" in message.text else None
            )
            await page.goto(f"http://{address}/dashboard")
            await page.get_by_label("Admin key").fill(user)
            await page.get_by_role("button", name="Open").click()
            await expect(page.get_by_role("alert")).to_contain_text("admin key")
            await expect(page.locator("#board")).to_be_hidden()
            await page.get_by_label("Admin key").fill(admin)
            await page.get_by_role("button", name="Open").click()
            await expect(page.locator("#turns tr")).to_have_count(1)
            await expect(page.locator("#turns tr")).to_contain_text("completed")
            await expect(page.locator("#conversations tr")).to_contain_text("kitchen")
            assert await page.locator(".waterfall span").count() >= 3
            assert await page.locator(".distribution div").count() == 30
            await speak_one_turn(client)
            await expect(page.locator("#turns tr")).to_have_count(2)  # it refreshes itself
            assert [text for text in errors if "Content Security" in text] == []
            await browser.close()


async def test_a_link_with_a_key_opens_the_page_and_the_dashboard_and_leaves_no_trace_of_it(
    chromium: str, tmp_path: Path
) -> None:
    keys = ApiKeys(start="rj_start")
    with serving(admission=Admission(3, keys), local=LocalAccess(enabled=False)) as address:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = await browser.new_page()
            requested: list[str] = []
            page.on("request", lambda request: requested.append(request.url))
            await page.goto(f"http://{address}/#key=rj_start")
            await expect(page.locator("#api-key")).to_have_value("rj_start")
            assert page.url == f"http://{address}/"
            await page.goto(f"http://{address}/dashboard")  # in the same tab
            await expect(page.locator("#board")).to_be_visible()
            assert not any("rj_start" in url for url in requested)
            await browser.close()


async def test_the_dashboard_outlasts_a_restart_and_names_what_its_last_bar_holds(chromium: str) -> None:
    with serving() as address:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            page = await browser.new_page()
            await page.goto(f"http://{address}/dashboard")
            bars = page.locator(".distribution div")
            await expect(bars.first).to_have_attribute("title", "0–100 ms: 0")
            await expect(bars.last).to_have_attribute("title", "2900 ms and more: 0")
            starting = {"status": "starting", "starting": "The language model is loaded."}
            await page.route("**/dashboard/data", lambda route: route.fulfill(status=503, json=starting))
            await expect(page.get_by_role("alert")).to_contain_text("Trying again.")
            await expect(page.locator("#sign-in")).to_be_hidden()
            await page.unroute("**/dashboard/data")
            await expect(page.locator("#notice")).to_be_hidden()
            await expect(page.locator("#board")).to_be_visible()
            await browser.close()
