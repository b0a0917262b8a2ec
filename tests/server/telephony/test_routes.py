"""Calls over real websockets: every carrier, many at once, refused calls, and clients that are no carriers."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from lab.simulator.call import place_call
from lab.simulator.carriers import CARRIERS
from lab.simulator.errors import ServerUnavailable
from lab.simulator.phone import NetworkConditions, dial
from server.access.admission import Admission
from server.access.keys import ApiKeys, KeyLimits, KeyStore
from server.telephony import connection, routes
from server.telephony.auth import CarrierAuth
from tests.real_time import HANG_S, retried_under_load, wait_until
from tests.server.telephony.live_server import check, live_server, plan


@retried_under_load(attempts=3)
async def test_eight_simultaneous_calls_of_every_carrier_are_greeted_and_answered() -> None:
    carriers = [*CARRIERS, "twilio", "plivo"]
    with live_server() as server:
        outcomes = await asyncio.gather(*(place_call(plan(server, carrier)) for carrier in carriers))
    for carrier, outcome in zip(carriers, outcomes, strict=True):
        check(outcome)
        assert outcome.greeted_ms is not None, carrier
        assert (outcome.marks > 0) == (carrier != "audiosocket"), carrier


@retried_under_load(attempts=3)
async def test_a_call_over_a_bad_network_is_answered() -> None:
    with live_server() as server:
        network = NetworkConditions(jitter_ms=15, reorder=0.1, loss=0.03)
        check(await place_call(plan(server, "telnyx", network=network)))


async def test_a_call_over_the_limit_hears_that_all_lines_are_busy_and_is_hung_up_on() -> None:
    with live_server(max_conversations=1) as server:
        async with dial(server.phone_url, CARRIERS["twilio"]({})) as first:
            await wait_until(lambda: bool(first.player.chunks))  # the greeting
            for carrier in ("twilio", "audiosocket"):
                async with dial(server.url(carrier), CARRIERS[carrier]({})) as phone:
                    await asyncio.wait_for(phone.disconnected.wait(), HANG_S)
                    assert phone.player.chunks, carrier  # the announcement
            assert not first.disconnected.is_set()


async def test_too_many_busy_calls_get_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "_MAX_REFUSED_CALLS", 0)
    with live_server(max_conversations=0) as server:
        with pytest.raises(ServerUnavailable, match="503 every line is busy"):
            async with dial(server.phone_url, CARRIERS["twilio"]({})):
                pass
        async with dial(server.tcp_url, CARRIERS["audiosocket"]({})) as phone:
            await asyncio.wait_for(phone.disconnected.wait(), HANG_S)


async def test_calls_with_a_named_api_key_are_accepted_and_others_are_not(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.sqlite")
    secret = store.add("pbx", KeyLimits(conversations=0))
    admission = Admission(4, ApiKeys(store=store))
    with live_server(admission=admission) as server:
        for url in (server.phone_url, f"{server.phone_url}?token=wrong"):
            with pytest.raises(InvalidStatus) as refused:
                await connect(url)
            assert refused.value.response.status_code == 403
        async with dial(f"{server.phone_url}?token={secret}", CARRIERS["twilio"]({})) as phone:
            await asyncio.wait_for(phone.disconnected.wait(), HANG_S)
        assert admission.refusals["key_conversation_limit"] == 1  # it was recognized, and has a limit


@retried_under_load(attempts=3)
async def test_an_unauthenticated_call_gets_403_and_one_line_of_log(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    caplog.clear()
    with live_server(carrier_auth=CarrierAuth(shared_secrets=("s3cret",))) as server:
        with pytest.raises(InvalidStatus) as refused:
            await connect(server.phone_url)
        assert refused.value.response.status_code == 403
        warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert len(warnings) == 1
        assert "neither a carrier's signature nor the secret" in warnings[0]
        assert capsys.readouterr().err == ""  # where uvicorn logs
        urls = (f"{server.phone_url}?token=s3cret", f"{server.phone_url}/s3cret")
        for outcome in await asyncio.gather(*(place_call(plan(server, url=url)) for url in urls)):
            check(outcome)


async def test_the_secret_of_calls_cannot_be_guessed_and_signatures_always_work() -> None:
    carrier_auth = CarrierAuth(shared_secrets=("s3cret",))
    with live_server(carrier_auth=carrier_auth) as server:

        async def status(ticket: str) -> int:
            async with httpx.AsyncClient() as web:
                return (await web.get(f"http://{server.address}/phone/twilio.xml?token={ticket}")).status_code

        assert await status("s3cret") == 200
        assert [await status(f"guess-{n}") for n in range(10)] == [403] * 10
        assert await status("s3cret") == 403
        url = f"{server.phone_url}/{carrier_auth.issue_ticket()}"
        check(await place_call(plan(server, url=url)))
        uuid = {"uuid": str(carrier_auth.audiosocket_uuid)}
        async with dial(server.tcp_url, CARRIERS["audiosocket"](uuid)) as phone:
            await wait_until(lambda: bool(phone.player.chunks))


async def test_without_credentials_only_this_machine_can_place_calls() -> None:
    with live_server() as server:
        host, _, port = server.address.partition(":")
        with pytest.raises(InvalidStatus) as refused:
            await connect("ws://phone.example.org/phone", host=host, port=int(port))
        assert refused.value.response.status_code == 403
        await (await connect(server.phone_url)).close()


async def test_an_upgrade_signed_by_twilio_is_accepted() -> None:
    validator = pytest.importorskip("twilio.request_validator", reason='pip install -e ".[test]"').RequestValidator(
        "token"
    )
    with live_server(carrier_auth=CarrierAuth(twilio_token="token")) as server:
        signature = validator.compute_signature(server.phone_url.replace("ws:", "wss:"), {})
        headers = {"X-Twilio-Signature": signature}
        async with dial(server.phone_url, CARRIERS["twilio"]({}), headers=headers) as phone:
            await wait_until(lambda: bool(phone.player.chunks))


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "text"])
async def test_a_call_over_asterisks_websocket(as_json: bool) -> None:
    """`connection_type = per_call_config` with `protocols = media`, as in docs/guide/telephony.md."""
    fields = {"connection_id": "c1", "channel": "WebSocket/rejoinder/0x1", "channel_id": "1.1", "format": "ulaw"}
    text = " ".join(["MEDIA_START", *(f"{name}:{value}" for name, value in fields.items())])
    start, received, commands = json.dumps({"event": "MEDIA_START", **fields}) if as_json else text, 0, []
    with live_server() as server:
        async with connect(f"{server.phone_url}?token=any", subprotocols=[Subprotocol("media")]) as socket:
            assert socket.subprotocol == "media"
            await socket.send(start)
            while received < 8 * 100:
                frame = await asyncio.wait_for(socket.recv(), HANG_S)
                if isinstance(frame, bytes):
                    received += len(frame)
                else:
                    commands.append(json.loads(frame)["command"] if as_json else frame.split()[0])
            await socket.send('{"event": "HANGUP"}' if as_json else "HANGUP")
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    await asyncio.wait_for(socket.recv(), HANG_S)
    assert commands[0] == "ANSWER"
    assert set(commands) <= {"ANSWER", "MARK_MEDIA"}
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1000


async def test_a_page_of_another_site_cannot_place_calls() -> None:
    with live_server() as server, pytest.raises(InvalidStatus) as refused:
        await connect(server.phone_url, origin="https://evil.example")
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize(
    ("frames", "code"),
    [
        (["{nonsense"], 1007),
        ([b"\x00" * 640], 1003),
        (['{"event": "media", "media": {}}'], 1008),
        (['{"event": "websocket:connected", "content-type": "audio/opus"}'], 1003),
    ],
)
async def test_a_stream_that_is_no_call_is_closed_with_the_matching_code(frames: list[str | bytes], code: int) -> None:
    with live_server() as server:
        async with connect(server.phone_url) as socket:
            for frame in frames:
                await socket.send(frame)
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.wait_for(socket.recv(), HANG_S)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == code


async def test_a_stream_that_never_starts_is_closed_after_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "START_TIMEOUT_S", 0.3)
    with live_server() as server:
        async with connect(server.phone_url) as socket:
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.wait_for(socket.recv(), HANG_S)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008
