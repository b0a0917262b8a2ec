"""What browsers ask for the pages of other sites."""

from __future__ import annotations

import httpx
import pytest

from tests.real_time import HANG_S
from tests.server.live_server import serving

PAGE = "https://example.org"


def ask(address: str, path: str, origin: str) -> tuple[httpx.Response, httpx.Response]:
    """What a browser is answered before it sends a request with a key, and then."""
    url, headers = f"http://{address}{path}", {"origin": origin}
    asked = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    before = httpx.options(url, headers=headers | asked, timeout=HANG_S)
    return before, httpx.post(url, headers=headers, json={"input": ""}, timeout=HANG_S)


@pytest.mark.parametrize("allowed", [PAGE, "*"])
def test_pages_that_are_allowed_use_the_api_and_read_its_errors(allowed: str) -> None:
    with serving(origins=frozenset({allowed})) as address:
        before, answer = ask(address, "/v1/audio/speech", PAGE)
        assert before.status_code == 200 and answer.status_code == 400
        assert before.headers["access-control-allow-headers"] == "authorization,content-type"
        for response in (before, answer):
            assert response.headers["access-control-allow-origin"] == allowed
        for response in ask(address, "/drain", PAGE):
            assert "access-control-allow-origin" not in response.headers


@pytest.mark.parametrize("origins", [frozenset(), frozenset({"https://other.example"})])
def test_other_pages_are_told_nothing(origins: frozenset[str]) -> None:
    with serving(origins=origins) as address:
        before, answer = ask(address, "/v1/audio/speech", PAGE)
    assert before.status_code == 400 and answer.status_code == 403
    for response in (before, answer):
        assert "access-control-allow-origin" not in response.headers
