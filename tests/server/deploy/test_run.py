"""What the server prints once it is ready."""

from __future__ import annotations

import io
import socket

import pytest
from rich.console import Console

from server.deploy.run import ServeSettings, _print_ready
from server.telephony.auth import CarrierAuth
from server.telephony.routes import TelephonySettings


@pytest.mark.parametrize(
    ("carrier_auth", "warned"), [(CarrierAuth(), True), (CarrierAuth(shared_secrets=("s",)), False)]
)
def test_a_server_that_anyone_can_call_warns_at_startup(carrier_auth: CarrierAuth, warned: bool) -> None:
    out, local_only = io.StringIO(), io.StringIO()
    host, port = "127.0.0.1", 8000
    telephony = TelephonySettings(carrier_auth=carrier_auth)
    settings = ServeSettings(host, port, None, None, False, frozenset(), frozenset(), 1, telephony=telephony)
    with socket.create_server((host, 0)) as http_socket, socket.create_server((host, 0)) as tcp_socket:
        _print_ready(settings, http_socket, tcp_socket, Console(file=out, width=400))
        _print_ready(settings, http_socket, None, Console(file=local_only, width=400))
    assert ("can place phone calls" in out.getvalue()) == warned
    assert "AudioSocket: 127.0.0.1:" in out.getvalue()
    assert "phone call" not in local_only.getvalue()
