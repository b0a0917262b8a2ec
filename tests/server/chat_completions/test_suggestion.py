"""A plug-in's session at `/infill`: what it reads again, where suggestions end, and what hanging up costs."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lab.benchmarks.editor_session.recording import editor_requests
from model.engine.engine import Engine
from server.chat_completions.suggestion import SuggestionEnd
from tests.real_time import HANG_S
from tests.server.chat_completions.test_code import AFTER, BEFORE, post


class Passes:
    """Counts forward passes, each of which takes at least 10 ms."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, run = 0, engine.model.decoder.run

        def counted(*arguments: Any) -> Any:
            self.count += 1
            time.sleep(0.01)
            return run(*arguments)

        monkeypatch.setattr(engine.model.decoder, "run", counted)

    def settled(self) -> int:
        """Their number once none has been made for 200 ms."""
        before = -1
        while before != self.count:
            before = self.count
            time.sleep(0.2)
        return before


@pytest.fixture
def passes(tiny_engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Passes]:
    passes = Passes(tiny_engine, monkeypatch)
    yield passes
    passes.settled()


def test_a_session_of_llama_vscode_is_answered_and_reads_little_again(address: str) -> None:
    cached, read = 0, 0
    for request in editor_requests():
        response = post(address, "/infill", **{**request.body, "n_predict": min(4, request.body["n_predict"])})
        body = response.json()
        assert response.status_code == 200, body
        if request.kind == "context":
            assert body["content"] == "" and body["stop"]
        if request.kind == "ahead":
            read, cached = read + body["tokens_evaluated"], cached + body["tokens_cached"]
    assert cached > 0.5 * read > 0


def test_a_request_without_tokens_only_reads(address: str, passes: Passes) -> None:
    files = [{"filename": "a.py", "text": "hello to you " * 20}]
    ahead = post(address, "/infill", input_prefix="", n_predict=0, input_extra=files).json()
    assert ahead["content"] == "" and ahead["tokens_predicted"] <= 1
    body = post(address, "/infill", input_prefix=BEFORE, n_predict=1, input_extra=files).json()
    assert body["tokens_cached"] > 0.5 * body["tokens_evaluated"]


@contextmanager
def sent(address: str, body: dict[str, Any]) -> Iterator[None]:
    """A request to `/infill`, whose connection is closed at the end of the block."""
    host, port = address.split(":")
    content = json.dumps(body).encode()
    head = f"POST /infill HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n"
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"{head}content-length: {len(content)}\r\n\r\n".encode() + content)
        yield


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_hangs_up_ends_its_generation(address: str, passes: Passes, stream: bool) -> None:
    began, deadline = passes.settled(), time.monotonic() + HANG_S
    with sent(address, {"input_prefix": BEFORE, "input_suffix": AFTER, "n_predict": 400, "stream": stream}):
        while passes.count < began + 5 and time.monotonic() < deadline:
            time.sleep(0.01)
    at_hang_up = passes.count
    assert at_hang_up >= began + 5
    assert passes.settled() <= at_hang_up + 10  # of the 400 that are left


def test_a_request_that_is_given_up_before_its_turn_makes_no_forward_pass(
    address: str, tiny_engine: Engine, passes: Passes
) -> None:
    before = passes.settled()
    blocked = threading.Event()
    blocking = threading.Thread(target=tiny_engine.call, args=(lambda model: blocked.wait(HANG_S),))
    blocking.start()  # the engine works for somebody else
    with sent(address, {"input_prefix": BEFORE, "n_predict": 400}):
        time.sleep(0.3)
    time.sleep(0.3)
    blocked.set()
    blocking.join()
    assert passes.settled() == before


def ended(text: str, **limits: Any) -> tuple[str, bool]:
    """A suggestion that arrives two characters at a time, as far as it is passed on, and whether it ended early."""
    end = SuggestionEnd(**limits)
    shown = ""
    for start in range(0, len(text), 2):
        shown += end.push(text[start : start + 2], last=start + 2 >= len(text))
        if end.reached:
            break
    return shown, end.reached


def test_a_suggestion_ends_before_a_line_with_less_indentation() -> None:
    text = "a = 1\n    b = 2\n\n        c = 3\ndef f():\n    pass\n"
    assert ended(text, indent=4) == ("a = 1\n    b = 2\n\n        c = 3\n", True)
    assert ended(text) == (text, False)
    assert ended("a = 1\n    ", indent=8) == ("a = 1\n    ", False)


def test_a_suggestion_whose_time_is_over_ends_with_its_line() -> None:
    seconds = iter(range(100))
    shown, early = ended("one\ntwo\nthree\nfour\n", limit_s=4.5, clock=lambda: float(next(seconds)))
    assert early and shown.endswith("\n") and "one\ntwo\n" in shown and "four" not in shown
