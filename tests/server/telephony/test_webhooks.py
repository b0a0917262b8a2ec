"""Webhooks: each carrier's document names a stream URL that accepts the call."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from xml.etree import ElementTree

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from agent.tools.conversation_tools import ConversationTools
from agent.tools.server_tools import ServerTools, ToolSettings
from agent.tools.user_data import owner_id
from lab.simulator.call import place_call
from lab.simulator.carriers import CARRIERS
from lab.simulator.phone import dial
from server.access.admission import Admission
from server.access.keys import ApiKeys, KeyStore
from server.shared_store import SharedRecords, SQLiteStore
from server.telephony.auth import CarrierAuth
from server.telephony.plivo_headers import read_value
from tests.real_time import HANG_S, retried_under_load, wait_until
from tests.server.telephony.live_server import LiveServer, check, live_server, plan

DOCUMENTS = ["twilio.xml", "telnyx.xml", "plivo.xml", "vonage.json", "exotel.json"]


async def call_through_document(server: LiveServer, name: str) -> None:
    """Fetch a carrier's document as the carrier does, and place the call that it describes."""
    carrier = name.partition(".")[0]
    async with httpx.AsyncClient(base_url=f"http://{server.address}", timeout=HANG_S) as client:
        refused = await client.post(f"/phone/{name}", data={"From": "+1555"})
        query = {"token": "s3cret", "greeting": 'Hi <there> & "you"', "speed": "1.25", "other": "1"}
        response = await client.post(f"/phone/{name}", params=query, data={"From": "+1555", "To": "+1556"})
    assert refused.status_code == 403
    assert response.status_code == 200
    if name.endswith("xml"):
        root = ElementTree.fromstring(response.text)
        (stream,) = root.iter("Stream")
        url = stream.get("url") or (stream.text or "").strip()
        parameters = {element.get("name"): element.get("value") for element in root.iter("Parameter")}
        if carrier == "plivo":
            words = str(stream.get("extraHeaders")).split(",")
            assert all(value.isalnum() for _, _, value in (word.partition("=") for word in words))
            parameters = {name: read_value(value) for name, _, value in (word.partition("=") for word in words)}
    else:
        body = json.loads(response.text)
        url = body["url"] if carrier == "exotel" else body[0]["endpoint"][0]["uri"]
        parameters = {} if carrier == "exotel" else body[0]["endpoint"][0]["headers"]
    assert url.startswith(f"{server.phone_url}/")
    if carrier != "exotel":
        assert parameters["greeting"] == 'Hi <there> & "you"'
        assert (parameters["speed"], parameters["from"], "other" in parameters) == ("1.25", "+1555", False)
    check(await place_call(plan(server, carrier, url=url)))


@retried_under_load(attempts=3)
async def test_every_document_passes_parameters_on_and_its_stream_url_accepts_the_call() -> None:
    with live_server(carrier_auth=CarrierAuth(shared_secrets=("s3cret",))) as server:
        await asyncio.gather(*(call_through_document(server, name) for name in DOCUMENTS))


async def announced(server: LiveServer, token: str, name: str = "twilio.xml", **fields: str) -> str:
    """The stream URL that an accepted webhook gets."""
    async with httpx.AsyncClient(base_url=f"http://{server.address}", timeout=HANG_S) as client:
        response = await client.get(f"/phone/{name}", params={"token": token, **fields})
    if name.endswith("json"):
        return str(json.loads(response.text)[0]["endpoint"][0]["uri"])
    return next(str(stream.get("url")) for stream in ElementTree.fromstring(response.text).iter("Stream"))


async def refusal(url: str) -> int:
    with pytest.raises(InvalidStatus) as refused:
        await connect(url)
    return refused.value.response.status_code


@pytest.mark.parametrize(
    ("name", "fields", "caller"),
    [
        ("twilio.xml", {"From": "+15550100"}, "+15550100"),
        ("vonage.json", {"from": "15550100"}, "15550100"),
        ("twilio.xml", {}, ""),
        ("twilio.xml", {"From": "+266696687"}, ""),
    ],
)
async def test_the_caller_is_the_one_that_the_webhook_named(name: str, fields: dict[str, str], caller: str) -> None:
    """The owner of notes is not what the holder of a ticket says of itself."""
    admission = Admission(4)
    with live_server(carrier_auth=CarrierAuth(shared_secrets=("s3cret",)), admission=admission) as server:
        url = await announced(server, "s3cret", name, **fields)
        async with dial(url, CARRIERS["twilio"]({"from": "+15550199"})) as phone:
            await wait_until(lambda: bool(phone.player.chunks))
            assert [slot.caller for slot in admission.slots] == [caller]


@pytest.mark.parametrize("number", ["+15550100", "anonymous"])
async def test_notes_of_a_caller_are_apart_for_each_key_and_for_the_carrier(tmp_path: Path, number: str) -> None:
    """Whoever has a key may say any number. Callers who withhold it share none."""
    store, owners = KeyStore(tmp_path / "keys.sqlite"), list[str]()

    class Tools(ServerTools):
        def conversation(self, owner: str = "", allowed: frozenset[str] | None = None) -> ConversationTools:
            owners.append(owner)
            return super().conversation(owner, allowed)

    keys, settings = [store.add("pbx"), store.add("friend")], ToolSettings(data=tmp_path)
    auth, admission = CarrierAuth(shared_secrets=("s3cret",)), Admission(4, ApiKeys(store=store))
    with live_server(carrier_auth=auth, admission=admission, tools=Tools(settings)) as server:
        for token in ("s3cret", *keys):
            async with dial(f"{server.phone_url}?token={token}", CARRIERS["twilio"]({"from": number})) as phone:
                await wait_until(lambda phone=phone: bool(phone.player.chunks))
    known = number.startswith("+")
    assert owners == [owner_id("phone", number) + of if known else "" for of in ("", "@pbx", "@friend")]


async def test_a_ticket_is_good_for_one_stream_on_all_replicas_together(tmp_path: Path) -> None:
    auth, store = CarrierAuth(shared_secrets=("s3cret",)), SQLiteStore(tmp_path / "records.sqlite")
    with (
        live_server(carrier_auth=auth) as alone,
        live_server(carrier_auth=auth, records=SharedRecords(store)) as first,
        live_server(carrier_auth=auth, records=SharedRecords(store)) as second,
    ):
        url = await announced(alone, "s3cret")
        await (await connect(url)).close()
        assert await refusal(url) == 403
        url = await announced(first, "s3cret")
        await (await connect(url)).close()
        assert await refusal(url.replace(first.address, second.address)) == 403
    store.close()


async def test_a_call_that_a_key_announced_counts_for_the_key_until_it_is_revoked(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.sqlite")
    admission, secret = Admission(4, ApiKeys(store=store)), store.add("pbx")
    with live_server(admission=admission) as server:
        async with dial(await announced(server, secret), CARRIERS["twilio"]({})) as phone:
            await wait_until(lambda: bool(phone.player.chunks))
            assert [slot.key and slot.key.name for slot in admission.slots] == ["pbx"]
        await wait_until(lambda: not admission.slots)
        url = await announced(server, secret)
        store.revoke("pbx")
        assert await refusal(url) == 403
