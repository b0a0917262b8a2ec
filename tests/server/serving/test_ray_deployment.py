"""The service on Ray Serve, with fake models. Skipped where Ray is not installed: `pip install -e ".[cluster]"`."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection

from server.serving.load_balancer import LoadBalancer, find_haproxy
from server.serving.scaling import ReplicaLimits
from tests.cluster_fakes import fake_replica
from tests.real_time import wait_until
from tests.server.live_server import connected, receive

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
ray = pytest.importorskip("ray", reason='Ray is not installed: pip install -e ".[cluster]"')

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module", params=["HAProxy", "Ray's proxy"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """`host:port` of two replicas with two slots each, behind HAProxy or behind Ray's proxy."""
    from server.serving import ray_deployment

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        ray.init(
            "local", num_cpus=8, include_dashboard=False, object_store_memory=100 << 20, logging_level=logging.ERROR
        )
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as stack:
            port = listener.getsockname()[1]
            follower = None
            if request.param == "HAProxy":
                binary = find_haproxy()
                assert binary is not None
                balancer = LoadBalancer(binary, listener, None, None, 60.0)
                stack.callback(balancer.close)
                follower = ray_deployment.Follower(balancer)
            else:
                listener.close()
            options = ray_deployment.DeploymentOptions(ReplicaLimits(2, 2))
            http_options = {"host": "127.0.0.1", "port": port}
            assert ray_deployment.start(fake_replica(2), options, http_options, follower=follower) == [2, 2]
            with follower or nullcontext():
                yield f"127.0.0.1:{port}"
            assert ray_deployment.stop(1.0)
    finally:
        ray.shutdown()


def test_the_number_of_replicas_follows_open_conversations_and_shrinks_late() -> None:
    from server.serving.ray_deployment import OpenConversations

    policy = OpenConversations(buffer=2, scale_in_s=60)

    def replicas(now: float, *conversations: int) -> int:
        capacities = dict.fromkeys(range(len(conversations)), 8)
        metrics = {"conversations": dict(enumerate(conversations)), "capacity": capacities} if conversations else {}
        context = SimpleNamespace(aggregated_metrics=metrics, target_num_replicas=2, current_time=now)
        return policy(context)[0]

    assert replicas(1.0) == 2  # nothing was reported
    assert replicas(2.0, 3, 3) == 2
    assert replicas(3.0, 8, 7) == 3
    assert replicas(50.0, 1, 0, 0) == 3
    assert replicas(64.0, 1, 0, 0) == 1


async def say(client: ClientConnection) -> str:
    await client.send(json.dumps({"type": "response.create"}))
    done = await receive(client, "response.done")
    return str(done["response"]["output"][0]["content"][0]["transcript"])


async def test_all_routes_work_through_the_proxy_and_speak_for_all_replicas(address: str) -> None:
    async with httpx.AsyncClient(base_url=f"http://{address}", timeout=30) as http:
        for path, kind in (("/", "text/html"), ("/app.js", "javascript"), ("/phone/twilio.xml", "text/xml")):
            response = await http.get(path)
            assert response.status_code == 200 and kind in response.headers["content-type"]
        assert (await http.get("/readyz")).json() == {"status": "ready", "conversations": 0, "capacity": 4}
        metrics = (await http.get("/metrics")).text
        names = {line.split('"')[1] for line in metrics.splitlines() if line.startswith("rejoinder_capacity{")}
        assert len(names) == 2


async def test_conversations_are_spread_and_a_caller_is_refused_only_when_all_replicas_are_full(address: str) -> None:
    async with asyncio.timeout(60):
        contexts = [connected(address) for _ in range(4)]
        clients = await asyncio.gather(*(context.__aenter__() for context in contexts))
        try:
            for client in clients:
                await receive(client, "session.created")
            processes = Counter([(await say(client)).split()[1] for client in clients])
            assert sorted(processes.values()) == [2, 2]
            async with connected(address) as refused:
                error = await receive(refused, "error")
                assert error["error"]["code"] == "too_many_conversations"
            async with httpx.AsyncClient(base_url=f"http://{address}") as http:
                # What one replica knows of the other may be half a second old.
                async def shows(status: str) -> bool:
                    return bool((await http.get("/readyz")).json()["status"] == status)

                await wait_until(lambda: shows("full"))
                await clients[0].close()
                await wait_until(lambda: shows("ready"))
            async with connected(address) as admitted:
                created: dict[str, Any] = await receive(admitted, "session.created")
                assert created["session"]["model"] == "tiny"
        finally:
            await asyncio.gather(*(context.__aexit__(None, None, None) for context in contexts))
