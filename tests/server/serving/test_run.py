"""What the server prints once it is ready, and how it ends when the GPU fails."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from starlette.applications import Starlette

from model.engine.engine import DeviceFailed
from model.hub.store import ModelUnavailable
from server.access.keys import ApiKeys
from server.serving.run import print_ready, run
from server.serving.runtime import ModelOptions
from server.serving.service import ServeSettings, checked_access
from server.telephony.auth import CarrierAuth
from server.telephony.routes import TelephonySettings
from tests.fakes import fake_speech_models


@pytest.mark.parametrize(
    ("carrier_auth", "warned"), [(CarrierAuth(), True), (CarrierAuth(shared_secrets=("s",)), False)]
)
def test_a_server_that_anyone_can_call_warns_at_startup(carrier_auth: CarrierAuth, warned: bool) -> None:
    out, local_only = io.StringIO(), io.StringIO()
    host, port = "127.0.0.1", 8000
    telephony = TelephonySettings(carrier_auth=carrier_auth)
    settings = ServeSettings(host, port, None, None, False, frozenset(), frozenset(), 1, telephony=telephony)
    anyone = replace(settings, allow_anyone=True)
    print_ready(anyone, [8000, 9000], Console(file=out, width=400), "Up to 3 conversations.")
    print_ready(settings, [8000], Console(file=local_only, width=400), "Up to 3 conversations.")
    assert ("can place phone calls" in out.getvalue()) == warned
    assert "AudioSocket: 127.0.0.1:9000" in out.getvalue()
    assert "phone call" not in local_only.getvalue()
    assert "Up to 3 conversations" in local_only.getvalue()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "make a key with `rejoinder keys add NAME`"),
        ({"api_keys": frozenset({"secret"}), "audiosocket": 0}, "set --phone-secret"),
    ],
)
def test_nobody_gets_in_from_outside_without_a_key_unless_the_operator_insists(
    changes: dict[str, Any], message: str
) -> None:
    settings = ServeSettings("0.0.0.0", 0, None, None, False, frozenset(), frozenset(), 1, data=None)
    settings = replace(settings, **changes)
    with pytest.raises(ValueError, match=message):
        run(ModelOptions("missing"), settings, Console(file=io.StringIO()))
    insisted = replace(settings, allow_anyone=True)
    with pytest.raises(ModelUnavailable):  # it went on to load the model
        run(ModelOptions("missing"), insisted, Console(file=io.StringIO()))


@pytest.mark.parametrize("terminal", [True, False])
def test_a_server_behind_a_tunnel_gives_a_key_to_who_starts_it_but_not_to_a_log(terminal: bool) -> None:
    telephony = TelephonySettings(public_url="https://phone.example.org", carrier_auth=CarrierAuth("token"))
    settings = ServeSettings("127.0.0.1", 0, None, None, False, frozenset(), frozenset(), 1, telephony=telephony)
    checked = checked_access(settings, loopback=True)
    out = io.StringIO()
    print_ready(checked, [8000], Console(file=out, width=400, force_terminal=terminal), "Up to 3 conversations.")
    link = f"http://127.0.0.1:8000/#key={checked.start_key}"
    assert checked.start_key.startswith("rj_") and (link in out.getvalue()) == terminal
    assert ("rejoinder keys add" in out.getvalue()) != terminal
    found = ApiKeys(start=checked.start_key).find([checked.start_key])
    assert found is not None and found.admin


@pytest.mark.parametrize("changes", [{}, {"api_keys": frozenset({"s"})}, {"allow_anyone": True}], ids=str)
def test_no_key_is_made_where_there_is_another_way_in(changes: dict[str, Any]) -> None:
    settings = ServeSettings("127.0.0.1", 0, None, None, False, frozenset(), frozenset(), 1)
    if changes:
        settings = replace(settings, telephony=TelephonySettings(public_url="https://phone.example.org"), **changes)
    assert not checked_access(settings, loopback=True).start_key


def test_a_server_without_keys_says_that_a_proxy_needs_one() -> None:
    out = io.StringIO()
    settings = ServeSettings("127.0.0.1", 0, None, None, False, frozenset(), frozenset(), 1)
    print_ready(settings, [8000], Console(file=out, width=400), "Up to 3 conversations.")
    assert "before you put a proxy in front" in out.getvalue()


def test_the_server_ends_with_an_error_when_the_gpu_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor then starts it again; this process could answer nobody any more."""

    class FailingEngine:
        def __init__(self) -> None:
            self.failure: Future[DeviceFailed] = Future()
            self.closed = False
            self.preloaded = threading.Event()
            self.model = SimpleNamespace(grammars=SimpleNamespace(preload=self.preloaded.set))

        def submit(self, steps: object, on_error: object, on_done: Callable[[], None], **_: object) -> None:
            on_done()

        def close(self) -> None:
            self.closed = True

    class Ready(io.StringIO):
        """Makes the GPU fail once the server says that it is ready."""

        def write(self, text: str) -> int:
            if "Ready:" in text:
                threading.Thread(
                    target=engine.failure.set_result, args=(DeviceFailed("the GPU failed (a test)"),)
                ).start()
            return super().write(text)

    engine = FailingEngine()
    monkeypatch.setattr("server.serving.service.resolve_model", lambda options: options)
    monkeypatch.setattr("server.serving.service.load_speech_models", lambda *_: fake_speech_models())
    monkeypatch.setattr("server.serving.service.load_engine", lambda *_: engine)
    monkeypatch.setattr("server.serving.service.build_app", lambda *_: Starlette())
    settings = ServeSettings("127.0.0.1", 0, None, None, False, frozenset(), frozenset(), 1)
    with pytest.raises(OSError, match="the GPU failed \\(a test\\)"):
        run(ModelOptions("tiny"), settings, Console(file=Ready(), width=200))
    assert engine.closed and engine.preloaded.is_set()
