"""Coming back to a conversation whose connection dropped, over real sockets."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.typing import Subprotocol

from server.access.admission import Admission
from server.budgets import Budget
from server.context import SessionLimits
from server.realtime.events import server_event
from server.realtime.resumable_session import Outbox
from tests.fakes import FakeLanguageModel
from tests.real_time import wait_until
from tests.server.live_server import connected, receive, serving, speak_one_turn


async def resumable(client: ClientConnection) -> str:
    """Ask for a token to come back with."""
    update = {"type": "session.update", "session": {"type": "realtime", "include": ["rejoinder.resume"]}}
    await client.send(json.dumps(update))
    return str((await receive(client, "rejoinder.resume"))["token"])


def coming_back(token: str) -> dict[str, Any]:
    return {"subprotocols": [Subprotocol("realtime"), Subprotocol(f"rejoinder-resume.{token}")]}


async def test_a_client_that_comes_back_continues_its_conversation() -> None:
    admission = Admission(1)
    with serving(admission=admission) as address:
        async with connected(address) as client:
            session_id = (await receive(client, "session.created"))["session"]["id"]
            token = await resumable(client)
            assert (await speak_one_turn(client))["response"]["status"] == "completed"
            client.transport.abort()
        async with connected(address, **coming_back(token)) as client:  # in the slot that it kept
            assert (await receive(client, "session.created"))["session"]["id"] == session_id
            items = (await receive(client, "rejoinder.resumed"))["items"]
            assert [item["role"] for item in items] == ["user", "assistant"]
            assert "capital" in items[0]["content"][0]["transcript"]
            new_token = (await receive(client, "rejoinder.resume"))["token"]
            assert new_token != token
            assert (await speak_one_turn(client))["response"]["status"] == "completed"
        await wait_until(lambda: not admission.slots)  # it closed the connection itself, so nothing waits for it


async def test_a_client_secret_may_hold_the_wish_to_come_back() -> None:
    with serving() as address:
        async with httpx.AsyncClient() as web:
            body = {"session": {"include": ["rejoinder.resume"]}}
            secret = (await web.post(f"http://{address}/v1/realtime/client_secrets", json=body)).json()["value"]
        async with connected(address, additional_headers={"authorization": f"Bearer {secret}"}) as client:
            session_id = (await receive(client, "session.created"))["session"]["id"]
            token = (await receive(client, "rejoinder.resume"))["token"]
            client.transport.abort()
        async with connected(address, **coming_back(token)) as client:
            assert (await receive(client, "session.created"))["session"]["id"] == session_id


async def test_a_client_may_come_back_before_the_server_notices_that_it_was_gone() -> None:
    admission = Admission(1)
    with serving(admission=admission) as address:
        async with connected(address) as old:
            token = await resumable(old)
            async with connected(address, **coming_back(token)) as new:
                assert (await receive(new, "rejoinder.resumed"))["items"] == []
                await old.wait_closed()
                assert (await speak_one_turn(new))["response"]["status"] == "completed"
                assert len(admission.slots) == 1


async def test_a_response_that_was_not_heard_is_not_in_the_history() -> None:
    words = [f" word{n}" for n in range(250)]  # 25 s, which are sent at once
    with serving(new_language_model=lambda: FakeLanguageModel(words, 0.001)) as address:
        async with connected(address) as client:
            token = await resumable(client)
            await client.send(json.dumps({"type": "response.create"}))
            await receive(client, "response.output_audio.delta")
            client.transport.abort()
        async with connected(address, **coming_back(token)) as client:
            (item,) = (await receive(client, "rejoinder.resumed"))["items"]
            assert len(item["content"][0]["transcript"].split()) < 100
            assert (await speak_one_turn(client))["response"]["status"] == "completed"


async def test_nobody_else_can_take_a_conversation_over_and_it_ends_when_nobody_comes() -> None:
    admission = Admission(2)
    with serving(admission=admission, session_limits=SessionLimits(resume_s=0.3)) as address:
        async with connected(address) as client:
            first_id = (await receive(client, "session.created"))["session"]["id"]
            await resumable(client)
            client.transport.abort()
        async with connected(address, **coming_back("guessed")) as client:
            assert (await receive(client, "session.created"))["session"]["id"] != first_id
        await wait_until(lambda: not admission.slots)


async def test_a_client_that_did_not_ask_to_come_back_frees_its_slot_at_once() -> None:
    admission = Admission(1)
    with serving(admission=admission) as address:
        async with connected(address) as client:
            await receive(client, "session.created")
            client.transport.abort()
        await wait_until(lambda: not admission.slots)


@pytest.mark.parametrize("attached", [True, False])
async def test_what_no_client_gets_is_counted(attached: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("server.realtime.resumable_session.OUTBOX", Budget(300, 60.0))
    outbox = Outbox()
    if attached:
        outbox.attach()
    for _ in range(3):
        outbox(server_event("rejoinder.phase", phase="listening"))
    assert outbox.stalled.is_set() == attached
    assert outbox.dropped == (1 if attached else 3)
    outbox.detach()
    assert outbox.dropped == 3


async def test_a_hundred_clients_one_after_the_other_all_get_the_only_slot() -> None:
    admission = Admission(1)
    with serving(admission=admission) as address:
        for _ in range(100):
            async with connected(address) as client:
                assert json.loads(await client.recv())["type"] == "session.created"
    assert not admission.refusals


async def test_a_conversation_whose_client_has_gone_yields_its_slot_and_goes_on_in_the_next_one_that_is_free() -> None:
    admission = Admission(1)
    with serving(admission=admission) as address:
        async with connected(address) as client:
            token = await resumable(client)
            assert (await speak_one_turn(client))["response"]["status"] == "completed"
            client.transport.abort()
        await wait_until(lambda: all(slot.parked for slot in admission.slots))
        async with connected(address) as other:
            assert json.loads(await other.recv())["type"] == "session.created"
            returning = asyncio.create_task(connect_and_resume(address, token))
            await asyncio.sleep(0.2)
            assert not returning.done()
        assert len(await returning) == 2


async def connect_and_resume(address: str, token: str) -> list[Any]:
    """The items of a conversation that its client comes back to."""
    async with connected(address, **coming_back(token)) as client:
        items: list[Any] = (await receive(client, "rejoinder.resumed"))["items"]
        return items


async def test_a_client_that_understands_it_is_told_that_it_waits() -> None:
    with serving(admission=Admission(1)) as address:
        async with connected(address) as first:
            assert json.loads(await first.recv())["type"] == "session.created"
            offered = [Subprotocol("realtime"), Subprotocol("rejoinder-waiting")]
            async with connected(address, subprotocols=offered) as second:
                assert json.loads(await second.recv())["type"] == "rejoinder.waiting"
                await first.close()
                assert json.loads(await second.recv())["type"] == "session.created"


async def test_more_conversations_than_may_wait_end_with_the_one_that_has_waited_longest() -> None:
    admission = Admission(1)
    with serving(admission=admission) as address:
        for _ in range(10):
            async with connected(address) as client:
                await resumable(client)
                client.transport.abort()
            await wait_until(lambda: all(slot.parked for slot in admission.slots))
        assert len(admission.slots) == 8
