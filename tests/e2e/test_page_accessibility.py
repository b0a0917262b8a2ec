"""The pages for everybody: each state without violations of axe-core's rules, the keyboard alone, what a screen reader
reads, and that the page can be installed."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from playwright.async_api import expect

from lab.benchmarks import page_states
from lab.benchmarks.client_environments import install_npm_packages
from lab.benchmarks.page_states import STATES, Stage, serving_files, stage_in
from tests.e2e.conftest import skip_or_fail
from tests.real_time import HANG_S

expect.set_options(timeout=1000 * HANG_S)

AXE = "axe-core@4.14.1"

PAGES = 2
"""That are looked at at the same time."""

WEB = Path(__file__).parents[2] / "web"


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The script of axe-core, from npm."""
    if shutil.which("npm") is None:
        skip_or_fail("npm, which fetches axe-core, is not installed (Debian: apt install npm)")
    folder = tmp_path_factory.mktemp("axe")
    install_npm_packages(folder, (AXE,))
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


@asynccontextmanager
async def on_stage(chromium: str) -> AsyncIterator[Stage]:
    async with (
        serving_files() as address,
        page_states.chromium(chromium) as browser,
        stage_in(browser, address) as stage,
    ):
        yield stage


async def test_no_state_of_the_pages_violates_a_rule_of_accessibility(chromium: str, axe: str) -> None:
    violations: list[str] = []
    states = iter(STATES)

    async with serving_files() as address, page_states.chromium(chromium) as browser:

        async def examine() -> None:
            async with stage_in(browser, address) as stage:
                for state in states:
                    await stage.show(state)
                    await stage.page.evaluate(axe)
                    for look in ("phone", "wide-dark"):
                        await stage.look(look)
                        found = await stage.page.evaluate("axe.run({ resultTypes: ['violations'] })")
                        assert found["passes"]
                        for rule in found["violations"]:
                            where = [node["target"] for node in rule["nodes"]]
                            violations.append(f"{state.__name__}, {look}: {rule['id']} ({rule['help']}) at {where}")

        await asyncio.gather(*(examine() for _ in range(PAGES)))
    assert violations == []


async def test_the_keyboard_alone_reaches_everything_and_letters_are_no_commands_in_a_message(chromium: str) -> None:
    async with on_stage(chromium) as stage:
        page = stage.page
        await stage.show(page_states.listening)
        stage.exchange(1, "What is the capital of France?", "The capital of France is Paris.")
        await expect(page.locator(".latency")).to_have_count(1)
        await page.focus(".conversation")
        reached = []
        for _ in range(8):
            await page.keyboard.press("Tab")
            name = "document.activeElement.id || document.activeElement.textContent.trim()"
            reached.append(await page.evaluate(name))
        assert [name for name in reached if name in ("start", "mute", "typed", "Send", "Settings")] == [
            "start", "mute", "typed", "Send", "Settings",
        ]  # fmt: skip
        await page.locator(".latency summary").focus()
        await page.keyboard.press("Enter")
        await expect(page.locator(".latency .stages")).to_be_visible()
        await page.focus("#typed")
        await page.keyboard.type("mm m")
        await expect(page.locator("#typed")).to_have_value("mm m")
        await expect(page.locator("#mute")).to_have_attribute("aria-pressed", "false")


async def test_a_screen_reader_reads_what_is_settled_and_no_drafts(chromium: str) -> None:
    async with on_stage(chromium) as stage:
        page = stage.page
        await stage.show(page_states.drafts_settling)
        live = "all => all.filter((one) => one.closest('[aria-live], [role=status], [role=alert], [role=log]'))"
        assert await page.locator("#talk *").evaluate_all(live) == []
        await expect(page.locator("#settled")).to_have_attribute("aria-live", "polite")
        await expect(page.locator("#settled p")).to_have_text(["You: What is the capital of France?"])
        stage.speak("response_1", "The capital of France is Paris.")
        stage.done("response_1", "The capital of France is Paris.")
        await expect(page.locator("#settled p").last).to_have_text("Rejoinder: The capital of France is Paris.")


async def test_the_page_can_be_installed_and_keeps_only_its_own_files(chromium: str) -> None:
    async with serving_files() as address, page_states.chromium(chromium) as browser:
        page = await browser.new_page()
        await page.goto(f"{address}?captions=cap_1#key=secret")
        await page.evaluate("navigator.serviceWorker.ready")
        browser_session = await page.context.new_cdp_session(page)
        errors = (await browser_session.send("Page.getInstallabilityErrors"))["installabilityErrors"]
        assert [error["errorId"] for error in errors] in ([], ["in-incognito"])  # as the contexts of Playwright are
        assert (await browser_session.send("Page.getAppManifest"))["errors"] == []
        kept = "caches.open('rejoinder').then(async (cache) => (await cache.keys()).map(({ url }) => url))"
        cached = set(await page.evaluate(kept))
    others = re.compile(r"\.py$|^dashboard|^index\.html$|^service-worker\.js$")
    ours = {path.name for path in WEB.iterdir() if path.is_file() and not others.search(path.name)}
    assert cached == {address, *(f"{address}{name}" for name in ours)}
