"""The files of the page, and of the page alone."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from server.page import PageFiles


@pytest.fixture
def get() -> Callable[[str], httpx.Response]:
    return TestClient(Starlette(routes=[Mount("/", PageFiles())])).get


@pytest.mark.parametrize("path", ["/", "/app.js", "/style.css", "/dictation.html", "/icon.svg", "/stage_labels.json"])
def test_the_files_of_the_page_are_served(get: Callable[[str], httpx.Response], path: str) -> None:
    assert get(path).status_code == 200


@pytest.mark.parametrize(
    "path", ["/__init__.py", "/__pycache__/", "/__pycache__/__init__.cpython-311.pyc", "/%00", "/x"]
)
def test_nothing_else_is(get: Callable[[str], httpx.Response], path: str) -> None:
    assert get(path).status_code == 404
