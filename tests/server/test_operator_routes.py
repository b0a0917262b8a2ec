"""Health, readiness, draining, metrics and the dashboard's figures."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from server.access.admission import Admission
from server.access.keys import ApiKeys, KeyStore
from server.auth import LocalAccess
from tests.real_time import HANG_S
from tests.server.live_server import connected, receive, serving, speak_one_turn


async def test_readyz_fails_while_the_server_is_full() -> None:
    with serving(max_conversations=1) as address:
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=HANG_S) as web:
            assert (await web.get("/readyz")).status_code == 200
            async with connected(address) as client:
                await receive(client, "session.created")
                full = await web.get("/readyz")
                assert (full.status_code, full.json()["status"]) == (503, "full")
                assert (await web.get("/healthz")).status_code == 200


async def test_an_admin_key_drains_the_server_and_nobody_else_can(tmp_path: Path) -> None:
    store = KeyStore(tmp_path / "keys.sqlite")
    admin, user = store.add("root", admin=True), store.add("user")
    admission = Admission(4, ApiKeys(store=store))
    with serving(admission=admission) as address:
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=HANG_S) as web:
            for headers in ({}, {"Authorization": f"Bearer {user}"}):
                refused = await web.post("/drain", headers=headers)
                assert refused.status_code == 401
            web.headers["Authorization"] = f"Bearer {admin}"
            assert (await web.post("/drain")).json()["draining"]
            assert (await web.get("/readyz")).json()["status"] == "draining"
            async with connected(address, additional_headers={"Authorization": f"Bearer {user}"}) as client:
                assert (await receive(client, "error"))["error"]["code"] == "server_shutting_down"
                await client.wait_closed()
                assert client.close_code == 1012
            spoken = await web.post("/v1/audio/speech", json={"input": "Hello."})
            assert (spoken.status_code, spoken.headers["retry-after"]) == (503, "30")
            await web.delete("/drain")
            assert (await web.get("/readyz")).status_code == 200


async def test_a_local_server_without_keys_needs_none_for_the_operator_but_refuses_other_pages() -> None:
    with serving() as address:
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=HANG_S) as web:
            foreign = await web.post("/drain", headers={"Origin": "https://evil.example"})
            assert foreign.status_code == 403
            assert (await web.post("/drain")).status_code == 200
    with serving(local=LocalAccess(enabled=False)) as address:
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=HANG_S) as web:
            assert (await web.post("/drain")).status_code == 401


async def test_the_metrics_and_the_dashboard_show_a_turn_and_who_was_refused() -> None:
    with serving(max_conversations=1) as address:
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=HANG_S) as web:
            async with connected(address) as client:
                await speak_one_turn(client)
                async with connected(address) as refused:
                    await receive(refused, "error")
                metrics = (await web.get("/metrics")).text
                data = (await web.get("/dashboard/data")).json()
            page = await web.get("/dashboard")
    assert 'rejoinder_turns_total{status="completed"} 1.0' in metrics
    assert 'rejoinder_refused_total{reason="too_many_conversations"} 1.0' in metrics
    assert 'rejoinder_conversations{kind="realtime"} 1.0' in metrics
    assert 'rejoinder_stage_seconds_bucket{le="0.5",stage="transcription"}' in metrics
    (turn,) = data["turns"]
    assert turn["status"] == "completed"
    assert {"transcription", "synthesis"} <= set(turn["stages_ms"])
    assert data["conversations"][0]["kind"] == "realtime"
    assert data["refused"] == {"too_many_conversations": 1}
    assert "dashboard.js" in page.text


@pytest.mark.parametrize("path", ["/metrics", "/dashboard/data"])
async def test_only_operators_see_the_figures(path: str) -> None:
    with serving(api_keys=frozenset({"secret"})) as address:
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=HANG_S) as web:
            assert (await web.get(path)).status_code == 401
            refused = await web.get(path, headers={"Authorization": "Bearer secret"})
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "admin_key_required")
