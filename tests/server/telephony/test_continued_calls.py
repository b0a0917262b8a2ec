"""A call whose replica has died: the carrier asks again, and another replica continues it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect

from server.realtime.conversation import RealtimeConversation
from server.realtime.session_config import SessionConfig
from server.realtime.session_record import SessionRecord
from server.shared_store import SharedRecords, SQLiteStore
from server.telephony.auth import CarrierAuth
from server.telephony.continued_calls import CALL_PARAMETER, ContinuedCalls
from tests.real_time import HANG_S, wait_until
from tests.server.telephony.live_server import live_server
from voice.history import Item, Span


async def begin_call(url: str, call: str) -> ClientConnection:
    """Stream a call as Twilio does."""
    client = await connect(url, open_timeout=HANG_S)
    media = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
    start = {"callSid": "CA1", "streamSid": "MZ1", "mediaFormat": media, "customParameters": {CALL_PARAMETER: call}}
    await client.send(json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"}))
    await client.send(json.dumps({"event": "start", "streamSid": "MZ1", "start": start}))
    return client


class Carrier:
    """Asks for documents."""

    def __init__(self, address: str) -> None:
        self._client = httpx.AsyncClient(base_url=f"http://{address}", timeout=HANG_S)

    async def ask(self, url: str) -> ElementTree.Element:
        response = await self._client.post(url, data={"From": "+1555"})
        assert response.status_code == 200
        return ElementTree.fromstring(response.text)


@pytest.mark.parametrize("name", ["twilio.xml", "telnyx.xml", "plivo.xml"])
async def test_a_carrier_is_sent_back_while_a_call_has_lost_its_replica_and_hangs_up_otherwise(
    tmp_path: Path, name: str
) -> None:
    store, auth = SQLiteStore(tmp_path / "records.sqlite"), CarrierAuth(shared_secrets=("s3cret",))
    with live_server(carrier_auth=auth, records=SharedRecords(store)) as server:
        carrier = Carrier(server.address)
        first = await carrier.ask(f"/phone/{name}?token=s3cret&speed=1.2")
        assert [element.tag for element in first][-1] == "Redirect" and next(first.iter("Stream")) is not None
        again = str(first.findtext("Redirect"))
        assert again.startswith(f"http://{server.address}/phone/{name}?token=s3cret&speed=1.2&")
        over = await carrier.ask(again)
        assert [element.tag for element in over] == ["Hangup"]
        call = again.partition("rejoinder_continued=")[2].partition("-")[0]
        store.put(f"call/{call}", SessionRecord("", "sess_1", SessionConfig(), []).encode(), 60)
        second = await carrier.ask(again)
        assert next(second.iter("Stream")) is not None
        assert str(second.findtext("Redirect")).endswith(f"{call}-2")
        too_often = await carrier.ask(again.removesuffix("-1") + "-6")
        assert [element.tag for element in too_often] == ["Hangup"]
    store.close()


async def test_a_call_continues_with_its_history_and_ends_for_good(tmp_path: Path) -> None:
    store, call = SQLiteStore(tmp_path / "records.sqlite"), ContinuedCalls.new_id()
    text = "Ada is a nice name."
    heard = Item("item_2", "assistant", text, spans=[Span(text, 0, 1900)], complete=True)
    items: list[Any] = [Item("item_1", "user", "My name is Ada.", complete=True), heard]
    store.put(f"call/{call}", SessionRecord("", "sess_1", SessionConfig(), items).encode(), 60)
    with live_server(records=SharedRecords(store)) as server:
        client = await begin_call(server.phone_url, call)
        frames = [json.loads(await client.recv()) for _ in range(3)]
        assert frames[-1]["event"] == "media"  # it says that it is back

        def kept() -> bool:
            record = SessionRecord.decode(store.get(f"call/{call}") or b"{}")
            return record is not None and [item.text for item in record.items[:2]] == ["My name is Ada.", text]

        await wait_until(kept)
        await client.send(json.dumps({"event": "stop", "streamSid": "MZ1", "stop": {"callSid": "CA1"}}))
        async for _ in client:
            pass
        await wait_until(lambda: store.get(f"call/{call}") is None)
    store.close()


async def test_a_call_whose_record_fails_once_is_recorded_nevertheless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.background_tasks._RESTART_S", 0.0)
    store, call = SQLiteStore(tmp_path / "records.sqlite"), ContinuedCalls.new_id()
    record, failures = RealtimeConversation.record, list[int]()

    def fails_once(conversation: RealtimeConversation, key: str, caller: str = "") -> SessionRecord:
        failures.append(1)
        if len(failures) == 1:
            raise RuntimeError("a list that changes while it is read")
        return record(conversation, key, caller)

    monkeypatch.setattr(RealtimeConversation, "record", fails_once)
    with live_server(records=SharedRecords(store)) as server:
        client = await begin_call(server.phone_url, call)
        await wait_until(lambda: store.get(f"call/{call}") is not None)
        await client.close()
    store.close()


async def test_without_shared_records_a_document_has_no_redirect() -> None:
    with live_server() as server:
        document = await Carrier(server.address).ask("/phone/twilio.xml")
        assert document.find("Redirect") is None
        assert not [p for p in document.iter("Parameter") if p.get("name") == CALL_PARAMETER]


async def test_nobody_reads_other_records_by_naming_them_as_a_call(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "records.sqlite")
    store.put("call/../session/x", SessionRecord("", "sess_1", SessionConfig(), []).encode(), 60)
    calls = ContinuedCalls(SharedRecords(store))
    assert not await calls.may_continue("../session/x") and not await calls.may_continue("")
    store.close()
