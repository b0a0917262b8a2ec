"""AudioSocket calls over real TCP connections."""

from __future__ import annotations

import asyncio
import socket
from uuid import uuid4

import pytest

from lab.simulator.call import place_call
from lab.simulator.carriers import CARRIERS
from lab.simulator.phone import dial
from server.telephony import audiosocket_server
from server.telephony.auth import CarrierAuth
from server.telephony.settings import CallSettings
from tests.real_time import HANG_S, retried_under_load
from tests.server.telephony.live_server import LiveServer, check, live_server, plan


@retried_under_load(attempts=3)
async def test_calls_are_authenticated_by_their_uuid() -> None:
    carrier_auth = CarrierAuth(shared_secrets=("s3cret",))
    with live_server(carrier_auth=carrier_auth) as server:
        async with dial(server.tcp_url, CARRIERS["audiosocket"]({})) as phone:
            await asyncio.wait_for(phone.disconnected.wait(), HANG_S)
        parameters = {"uuid": str(carrier_auth.audiosocket_uuid)}
        check(await place_call(plan(server, "audiosocket", parameters=parameters)))


@retried_under_load(attempts=3)
async def test_whoever_guesses_uuids_has_to_wait(caplog: pytest.LogCaptureFixture) -> None:
    carrier_auth = CarrierAuth(shared_secrets=("s3cret",))

    async def is_closed(server: LiveServer, uuid: str) -> None:
        async with dial(server.tcp_url, CARRIERS["audiosocket"]({"uuid": uuid})) as phone:
            await asyncio.wait_for(phone.disconnected.wait(), HANG_S)

    with live_server(carrier_auth=carrier_auth) as server:
        for _ in range(10):
            await is_closed(server, str(uuid4()))
        await is_closed(server, str(carrier_auth.audiosocket_uuid))
        assert "too many wrong UUIDs or secrets came from this address" in caplog.text
        await asyncio.sleep(1.1)  # the first pause
        check(await place_call(plan(server, "audiosocket", parameters={"uuid": str(carrier_auth.audiosocket_uuid)})))


@retried_under_load(attempts=3)
async def test_connections_without_a_uuid_take_no_line_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audiosocket_server, "_MAX_UNIDENTIFIED", 4)
    monkeypatch.setattr(audiosocket_server, "_IDENTIFY_S", 2.0)
    with live_server(max_conversations=1) as server:
        port = int(server.tcp_url.rpartition(":")[2])
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(6)]
        async with asyncio.timeout(HANG_S):
            assert [await reader.read() for reader, _ in idle[4:]] == [b"", b""]  # too many: closed at once
            check(await place_call(plan(server)))  # the only line is free
            assert [await reader.read() for reader, _ in idle] == [b""] * 6
            check(await place_call(plan(server, "audiosocket")))
        for _, writer in idle:
            writer.close()


@retried_under_load(attempts=3)
async def test_a_client_that_stops_reading_does_not_disturb_other_calls() -> None:
    with live_server(call_settings=CallSettings(greeting=" ".join(["word"] * 300))) as server:
        client = socket.create_connection(("127.0.0.1", int(server.tcp_url.rpartition(":")[2])))
        client.sendall(b"\x01\x00\x10" + bytes(16) + b"\x10\x01\x40" + bytes(320))
        try:
            check(await place_call(plan(server, parameters={"greeting": "Hello."})))
        finally:
            client.close()
