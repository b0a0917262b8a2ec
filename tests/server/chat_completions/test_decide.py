"""Typed decisions over HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.real_time import HANG_S


def decide(address: str, **body: Any) -> httpx.Response:
    return httpx.post(f"http://{address}/v1/decide", json=body, timeout=HANG_S)


def test_each_kind_of_decision(address: str) -> None:
    yes_or_no = decide(address, type="boolean", input="hello to you").json()
    assert yes_or_no["value"] in (True, False)
    choice = decide(address, type="choice", choices=["Paris", "hello you", "to"], input="hello").json()
    assert choice["value"] in ("Paris", "hello you", "to")
    number = decide(
        address, type="number", minimum=0, maximum=1, step=0.25, messages=[{"role": "user", "content": "hello"}]
    ).json()
    assert [entry["value"] for entry in number["probabilities"]] == [0, 0.25, 0.5, 0.75, 1]
    assert 0 <= number["mean"] <= 1
    for decision in (yes_or_no, choice, number):
        shares = [entry["probability"] for entry in decision["probabilities"]]
        assert sum(shares) == pytest.approx(1) and decision["probability"] == max(shares)
        assert decision["usage"]["completion_tokens"] == 0 < decision["usage"]["prompt_tokens"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"type": "choice", "input": "x"}, "'choices'"),
        ({"type": "choice", "input": "x", "choices": ["a", " a"]}, "different"),
        ({"type": "choice", "input": "x", "choices": ["hello to you Paris " * 9, "a"]}, "tokens"),
        ({"type": "number", "input": "x", "minimum": 1}, "'maximum'"),
        ({"type": "number", "input": "x", "minimum": 3, "maximum": 1}, "above"),
        ({"type": "number", "input": "x", "minimum": 0, "maximum": 1e9}, "larger 'step'"),
        ({"type": "boolean"}, "either 'input' or 'messages'"),
    ],
)
def test_bad_requests_get_a_sentence(address: str, body: dict[str, Any], words: str) -> None:
    response = decide(address, **body)
    assert response.status_code == 400 and words in response.json()["error"]["message"]
