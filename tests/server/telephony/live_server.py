"""A real server with fake models, on real sockets, and calls to it from simulated carriers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import uvicorn

from lab.report.corpus import bounds_ms
from lab.simulator.call import CallOutcome, CallPlan
from server.access.admission import Admission
from server.app import build_app
from server.context import ServerContext
from server.telephony.auth import CarrierAuth
from server.telephony.routes import TelephonySettings
from server.telephony.settings import CallSettings
from tests.fakes import FakeLanguageModel, fake_speech_models
from tests.real_time import HANG_S
from voice.audio.codec import OUTPUT_RATE, Samples

MAX_LATENCY_MS = 5000
"""With fake models, a response comes about 270 ms after the words. A busy machine takes longer, so this only tells an
answer from none; `test_call.py` and `test_phone_client.py` test the latency itself."""


class LiveServer:
    """Where the server listens.

    Attributes:
        address: HOST:PORT of the websocket and HTTP port.
        phone_url: for carriers that use websockets.
        tcp_url: for AudioSocket.
    """

    def __init__(self, address: str, tcp_address: str) -> None:
        self.address, self.phone_url, self.tcp_url = address, f"ws://{address}/phone", f"tcp://{tcp_address}"

    def url(self, carrier: str) -> str:
        return self.tcp_url if carrier == "audiosocket" else self.phone_url


@contextmanager
def live_server(
    call_settings: CallSettings | None = None,
    carrier_auth: CarrierAuth | None = None,
    language_model: Callable[[], FakeLanguageModel] = FakeLanguageModel,
    max_conversations: int = 16,
    **settings: Any,
) -> Iterator[LiveServer]:
    """Run a server in a thread."""
    settings.setdefault("admission", Admission(max_conversations))
    telephony = TelephonySettings(call_settings or CallSettings(greeting="Hello."), carrier_auth or CarrierAuth())
    http_socket, tcp_socket = socket.create_server(("127.0.0.1", 0)), socket.socket()
    tcp_socket.bind(("127.0.0.1", 0))
    context = ServerContext(language_model, fake_speech_models(), "tiny", **settings)
    config = uvicorn.Config(
        build_app(context, telephony, tcp_socket),
        log_level="error",
        ws="websockets-sansio",
        timeout_graceful_shutdown=2,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [http_socket]})
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.005)
    try:
        yield LiveServer(*(f"127.0.0.1:{bound.getsockname()[1]}" for bound in (http_socket, tcp_socket)))
    finally:
        server.should_exit = True
        thread.join(timeout=HANG_S)
        assert not thread.is_alive()


def words(seconds: float = 0.8) -> tuple[Samples, float]:
    """A recording that counts as speech, and the time in ms of its end."""
    samples = np.full(int(OUTPUT_RATE * seconds), 0.5, np.float32)
    return samples, bounds_ms(samples)[1]


def plan(server: LiveServer, carrier: str = "twilio", **fields: Any) -> CallPlan:
    """A call with one question."""
    return CallPlan(fields.pop("url", server.url(carrier)), carrier, [words()], **fields)


def check(outcome: CallOutcome) -> None:
    """The question of a call was answered, and the carrier accepted everything that the server sent.

    A caller who is stalled in the middle of the words sounds like one who has finished, so a test that calls this in
    real time is retried under load.
    """
    assert outcome.refused == ""
    assert outcome.violations == []
    (latency,) = outcome.latencies_ms
    assert latency is not None
    assert 0 < latency < MAX_LATENCY_MS
