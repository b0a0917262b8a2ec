"""Finding the browser and the page. That the page opens in it is tested in tests/e2e."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lab.report import chromium
from lab.report.chromium import BrowserUnavailable, find_browser, page_address
from lab.simulator.errors import ServerUnavailable


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("ws://127.0.0.1:8000/v1/realtime", "http://127.0.0.1:8000/"),
        ("wss://example.org/v1/realtime?model=x", "https://example.org/"),
        ("wss://example.org/voice/v1/realtime", "https://example.org/voice/"),
    ],
)
def test_the_page_is_on_the_server_of_the_endpoint(url: str, address: str) -> None:
    assert page_address(url) == address


def test_another_address_is_rejected() -> None:
    with pytest.raises(ServerUnavailable, match="is not a websocket URL"):
        page_address("nonsense")


def test_the_chosen_browser_comes_before_the_first_one_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = {"chromium-browser": "/found/chromium-browser", "google-chrome": "/found/google-chrome"}
    monkeypatch.setattr(shutil, "which", found.get)
    chosen = tmp_path / "browser"
    with pytest.raises(BrowserUnavailable, match="there is no browser"):
        find_browser(chosen)
    chosen.touch()
    assert find_browser(chosen) == str(chosen)
    assert find_browser() == "/found/chromium-browser"
    found.clear()
    assert find_browser() is None


def test_without_playwright_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chromium, "find_spec", lambda name: None)
    with pytest.raises(BrowserUnavailable, match=r'pip install -e "\.\[page\]"'):
        find_browser()
