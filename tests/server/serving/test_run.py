"""What the server prints once it is ready, and how it ends when the GPU fails."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from starlette.applications import Starlette

from model.engine.engine import DeviceFailed
from model.hub.transfer import ModelUnavailable
from server.access.keys import KEYS_FILE, ApiKeys, KeyStore
from server.serving.run import print_ready, run
from server.serving.service import checked_access
from server.serving.settings import ServeSettings
from tests.fakes import fake_speech_models


@pytest.mark.parametrize(("phone_secret", "warned"), [("", True), ("s", False)])
def test_a_server_that_anyone_can_call_warns_at_startup(phone_secret: str, warned: bool) -> None:
    out, local_only = io.StringIO(), io.StringIO()
    settings = ServeSettings(phone_secret=phone_secret)
    anyone = settings.model_copy(update={"allow_anyone": True})
    print_ready(anyone, [8000, 9000], Console(file=out, width=400), "Up to 3 conversations.")
    print_ready(settings, [8000], Console(file=local_only, width=400), "Up to 3 conversations.")
    assert ("can place phone calls" in out.getvalue()) == warned
    assert "AudioSocket: 127.0.0.1:9000" in out.getvalue()
    assert "phone call" not in local_only.getvalue()
    assert "Up to 3 conversations" in local_only.getvalue()


@pytest.mark.parametrize(
    ("key", "message"), [(False, "make a key with `rejoinder keys add NAME`"), (True, "set --phone-secret")]
)
def test_nobody_gets_in_from_outside_without_a_key_unless_the_operator_insists(
    key: bool, message: str, tmp_path: Path
) -> None:
    if key:
        KeyStore(tmp_path / KEYS_FILE).add("kitchen")
    settings = ServeSettings(host="0.0.0.0", port=0, audiosocket=0, data=tmp_path, model="missing")
    with pytest.raises(ValueError, match=message):
        run(settings, Console(file=io.StringIO()))
    insisted = settings.model_copy(update={"allow_anyone": True})
    with pytest.raises(ModelUnavailable):  # it went on to load the model
        run(insisted, Console(file=io.StringIO()))


@pytest.mark.parametrize("terminal", [True, False])
def test_a_server_behind_a_tunnel_gives_a_key_to_who_starts_it_but_not_to_a_log(terminal: bool, tmp_path: Path) -> None:
    settings = ServeSettings(public_url="https://phone.example.org", twilio_token="token", data=tmp_path)
    checked = checked_access(settings, loopback=True)
    out = io.StringIO()
    print_ready(checked, [8000], Console(file=out, width=400, force_terminal=terminal), "Up to 3 conversations.")
    link = f"http://127.0.0.1:8000/#key={checked.start_key}"
    assert checked.start_key.startswith("rj_") and (link in out.getvalue()) == terminal
    assert ("rejoinder keys add" in out.getvalue()) != terminal
    found = ApiKeys(start=checked.start_key).find([checked.start_key])
    assert found is not None and found.admin


@pytest.mark.parametrize("changes", [{}, {"api_key": ("s",)}, {"allow_anyone": True}], ids=str)
def test_no_key_is_made_where_there_is_another_way_in(changes: dict[str, Any], tmp_path: Path) -> None:
    settings = ServeSettings(data=tmp_path)
    if changes:
        settings = ServeSettings(data=tmp_path, public_url="https://phone.example.org", **changes)
    assert not checked_access(settings, loopback=True).start_key


def test_a_server_without_keys_says_that_a_proxy_needs_one(tmp_path: Path) -> None:
    out = io.StringIO()
    settings = ServeSettings(data=tmp_path)
    print_ready(settings, [8000], Console(file=out, width=400), "Up to 3 conversations.")
    assert "before you put a proxy in front" in out.getvalue()


def test_addresses_of_ipv6_are_in_brackets(tmp_path: Path) -> None:
    out = io.StringIO()
    settings = ServeSettings(data=tmp_path, host="::1")
    print_ready(settings, [8000, 8001], Console(file=out, width=400), "Up to 3 conversations.")
    assert "Ready: http://[::1]:8000/" in out.getvalue() and "AudioSocket: [::1]:8001," in out.getvalue()


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
    monkeypatch.setattr("server.serving.service.load_speech_models", lambda *_: fake_speech_models())
    monkeypatch.setattr("server.serving.service.load_engine", lambda *_: engine)
    monkeypatch.setattr("server.serving.service.build_app", lambda *_: Starlette())
    settings = ServeSettings(port=0, max_conversations="1", model="tiny")
    with pytest.raises(OSError, match="the GPU failed \\(a test\\)"):
        run(settings, Console(file=Ready(), width=200))
    assert engine.closed and engine.preloaded.is_set()
