"""Webhooks: each carrier's document names a stream URL that accepts the call."""

from __future__ import annotations

import asyncio
import json
from xml.etree import ElementTree

import httpx

from cli.call import place_call
from server.telephony.auth import CarrierAuth
from tests.real_time import HANG_S, retried_under_load
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
    else:
        body = json.loads(response.text)
        url = body["url"] if carrier == "exotel" else body[0]["endpoint"][0]["uri"]
        parameters = {} if carrier == "exotel" else body[0]["endpoint"][0]["headers"]
    assert url.startswith(f"{server.phone_url}/")
    if carrier in ("twilio", "telnyx", "vonage"):
        assert parameters["greeting"] == 'Hi <there> & "you"'
        assert (parameters["speed"], parameters["from"], "other" in parameters) == ("1.25", "+1555", False)
    check(await place_call(plan(server, carrier, url=url)))


@retried_under_load(attempts=3)
async def test_every_document_passes_parameters_on_and_its_stream_url_accepts_the_call() -> None:
    with live_server(carrier_auth=CarrierAuth(shared_secrets=("s3cret",))) as server:
        await asyncio.gather(*(call_through_document(server, name) for name in DOCUMENTS))
