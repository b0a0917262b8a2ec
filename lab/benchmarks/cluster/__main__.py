"""Proof of the cluster on one machine, with models that are fakes and take the time of real ones.

    python -m lab.benchmarks.cluster [--proxy haproxy|ray] [--only load throughput kill scaling upgrade] [--json FILE]

Needs the `cluster` extra. Starts Ray with at most three replicas and talks to it over the loopback interface; the
clients share the machine, so that its figures are upper limits. Each part prints what it found. The exit status is 1 if
a call was cut off that should not be.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  isort: skip - before torch

import argparse
import asyncio
import json
import logging
import os
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from websockets.exceptions import ConnectionClosed

from lab.benchmarks.cluster.callers import Caller, Refused, close_all, open_all
from lab.benchmarks.cluster.replica import load_timed_replica
from server.serving.load_balancer import LoadBalancer, find_haproxy
from server.serving.scaling import ReplicaLimits

ROOT = Path(__file__).parents[3]

CONVERSATIONS, REPLICAS = 200, 3
STREAMS = (0, 12, 24, 48, 96)
ROUND_TRIPS = 300
THROUGHPUT_S = 12.0
LONGEST_CALL_S = 3600.0


def free_port() -> int:
    """A port of the loopback interface that nobody uses."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def percentile(values: list[float], share: float) -> float:
    """The value below which this share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class Cluster:
    """Ray, with one application at a time.

    Args:
        haproxy: whether connections go through HAProxy to the replicas, instead of through Ray's own proxy.
    """

    def __init__(self, haproxy: bool) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        os.environ["PYTHONPATH"] = str(ROOT)  # replicas import this package
        import ray

        from server.serving import ray_deployment

        self._ray, self._serving = ray, ray_deployment
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port = int(self._listener.getsockname()[1])
        self._stack, self._follower = ExitStack(), None
        if haproxy:
            binary = find_haproxy()
            if binary is None:
                raise SystemExit("HAProxy is not installed")
            balancer = LoadBalancer(binary, self._listener, None, None, LONGEST_CALL_S)
            self._stack.callback(balancer.close)
            self._follower = ray_deployment.Follower(balancer)
        else:
            self._listener.close()
        ray.init(
            "local", num_cpus=32, include_dashboard=False, object_store_memory=100 << 20, logging_level=logging.ERROR
        )
        logging.getLogger("ray.serve").setLevel(logging.ERROR)
        self._following = False

    @property
    def address(self) -> str:
        """`host:port`."""
        return f"127.0.0.1:{self._port}"

    def deploy(self, limits: ReplicaLimits, capacity: int, records: str = "", **options: Any) -> float:
        """Start or upgrade the application; returns how long that took, in s.

        Args:
            options: of `DeploymentOptions`.
        """
        began = time.monotonic()
        deployment = self._serving.DeploymentOptions(limits, cpus=1.0, **options)
        load = partial(load_timed_replica, capacity, records)
        self._serving.start(load, deployment, {"host": "127.0.0.1", "port": self._port}, follower=self._follower)
        if self._follower is not None and not self._following:
            self._stack.enter_context(self._follower)
            self._following = True
        return time.monotonic() - began

    def states(self) -> Counter[str]:
        """How many replicas are in each state, such as RUNNING or STOPPING."""
        applications = self._serving.serve.status().applications
        deployment = applications[self._serving.NAME].deployments[self._serving.NAME]
        return Counter({str(getattr(state, "value", state)): n for state, n in deployment.replica_states.items() if n})

    def end(self) -> None:
        """End the application; nobody may be connected."""
        self._serving.serve.delete(self._serving.NAME)

    def close(self) -> None:
        """End Ray."""
        self._stack.close()
        self._serving.serve.shutdown()
        self._ray.shutdown()


async def round_trips(callers: list[Caller]) -> dict[str, float]:
    """ms from an event to its answer, over idle conversations in turn."""
    times = []
    for number in range(ROUND_TRIPS):
        times.append(1e3 * await callers[number % len(callers)].round_trip())
        await asyncio.sleep(0.01)
    return {"p50_ms": round(statistics.median(times), 2), "p95_ms": round(percentile(times, 0.95), 2)}


async def under_load(addresses: list[str]) -> dict[str, Any]:
    """Round trips over open conversations, of which more and more stream audio, until they take too long."""
    began = time.monotonic()
    parts, count = range(len(addresses) + 1), len(addresses)
    ends = [CONVERSATIONS * part // count for part in parts]
    share = [end - begin for begin, end in pairwise(ends)]
    callers = [c for opened in await asyncio.gather(*map(open_all, addresses, share)) for c in opened]
    found: dict[str, Any] = {"open": len(callers), "opened_in_s": round(time.monotonic() - began, 1)}
    streaming = 0
    order = [caller for n in range(max(share)) for caller in callers[n :: max(share)]]  # of all servers in turn
    try:
        for streams in STREAMS:
            for caller in order[streaming:streams]:
                caller.stream()
            streaming = streams
            await asyncio.sleep(2)
            found[f"{streams} stream"] = await round_trips(order[-60:])
            print(f"{', '.join(addresses)}: {streams} stream: {found[f'{streams} stream']}", flush=True)
            if found[f"{streams} stream"]["p95_ms"] > 100:
                break
        found["cut"] = sum(caller.cut for caller in callers)
    finally:
        await close_all(callers)
    return found


async def load(cluster: Cluster) -> dict[str, Any]:
    """The cost of the proxy: the same conversations with and without it."""
    await asyncio.to_thread(cluster.deploy, ReplicaLimits(REPLICAS, REPLICAS), CONVERSATIONS)
    through = await under_load([cluster.address])
    await asyncio.to_thread(cluster.end)
    ports = [free_port() for _ in range(REPLICAS)]
    command = [sys.executable, "-m", "lab.benchmarks.cluster.replica", "--port"]
    servers = [await asyncio.create_subprocess_exec(*command, str(port), cwd=ROOT) for port in ports]
    try:
        for port in ports:
            await answering(port)
        direct = await under_load([f"127.0.0.1:{port}" for port in ports])
    finally:
        for server in servers:
            server.terminate()
            await server.wait()
    return {"through the proxy": through, "without it": direct}


async def answering(port: int) -> None:
    """Wait until a server accepts connections."""
    async with asyncio.timeout(120):
        while True:
            with suppress(OSError):
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
                return
            await asyncio.sleep(0.2)


async def throughput(cluster: Cluster) -> dict[str, Any]:
    """Turns a second with one replica and with two."""
    found: dict[str, Any] = {}
    for count in (1, 2):
        await asyncio.to_thread(cluster.deploy, ReplicaLimits(count, count), 16)
        callers = await open_all(cluster.address, 8)
        ends_at, turns = time.monotonic() + THROUGHPUT_S, Counter[str]()

        async def talk(caller: Caller, ends_at: float = ends_at, turns: Counter[str] = turns) -> None:
            while time.monotonic() < ends_at:
                await caller.turn()
                turns[caller.process] += time.monotonic() < ends_at  # none that ends later

        await asyncio.gather(*map(talk, callers))
        found[f"{count} replica{'s' * (count > 1)}, turns/s"] = round(turns.total() / THROUGHPUT_S, 2)
        await close_all(callers)
        await asyncio.to_thread(cluster.end)
    one, two = found.values()
    return {**found, "ratio": round(two / one, 2)}


async def kill(cluster: Cluster) -> dict[str, Any]:
    """kill -9 of a replica in the middle of conversations, whose clients come back."""
    with tempfile.TemporaryDirectory() as folder:
        records = str(Path(folder) / "records.sqlite")
        await asyncio.to_thread(cluster.deploy, ReplicaLimits(REPLICAS, REPLICAS), 16, records)
        callers = await open_all(cluster.address, 24)
        for caller in callers:
            await caller.turn()
        await asyncio.sleep(1)
        read_before = {caller: caller.messages for caller in callers}
        victim = Counter(caller.process for caller in callers).most_common(1)[0][0]
        hit = [caller for caller in callers if caller.process == victim]
        os.kill(int(victim), signal.SIGKILL)
        began = time.monotonic()

        async def recover(caller: Caller) -> tuple[float, float, float]:
            await caller.dropped.wait()
            noticed = time.monotonic() - began
            await caller.come_back()
            back = time.monotonic() - began
            return noticed, back, back + await caller.turn()

        times = await asyncio.gather(*map(recover, hit))
        remembered = sum(caller.messages > read_before[caller] for caller in hit)
        others_cut = sum(caller.cut for caller in callers if caller not in hit)
        await close_all(callers)
        await asyncio.to_thread(cluster.end)
    noticed, back, spoken = (round(max(column), 2) for column in zip(*times, strict=True))
    return {
        "conversations of the replica": len(hit), "continued with their history": remembered,
        "slowest: connection closed after, s": noticed, "connected again, s": back,
        "speaking again, s": spoken,
        "other conversations cut": others_cut,
    }  # fmt: skip


async def reach(cluster: Cluster, condition: Callable[[Counter[str]], bool], limit_s: float = 180) -> float:
    """s until the replicas are in the states that are waited for. Raises TimeoutError."""
    began = time.monotonic()
    async with asyncio.timeout(limit_s):
        while not condition(await asyncio.to_thread(cluster.states)):  # noqa: ASYNC110 - Ray changes them
            await asyncio.sleep(0.25)
    return round(time.monotonic() - began, 1)


async def keep_talking(caller: Caller) -> None:
    """Take a turn now and then, until cancelled."""
    with suppress(ConnectionClosed):
        while True:
            await caller.turn()
            await asyncio.sleep(1.5)


async def scaling(cluster: Cluster) -> dict[str, Any]:
    """From one replica to three and back, while conversations go on."""
    await asyncio.to_thread(cluster.deploy, ReplicaLimits(1, 3), 8, buffer=2.0, scale_in_s=5.0)
    began, refusals = time.monotonic(), 0
    callers, talking = [], []
    for _ in range(20):
        while True:
            caller = Caller(cluster.address)
            try:
                await caller.open()
            except Refused:
                refusals += 1
                await caller.close()
                await asyncio.sleep(0.5)
                continue
            break
        callers.append(caller)
        talking.append(asyncio.create_task(keep_talking(caller)))
    grown_s = round(time.monotonic() - began, 1)
    await asyncio.sleep(3)
    at_most = (await asyncio.to_thread(cluster.states))["RUNNING"]
    spread = sorted(Counter(caller.process for caller in callers).values())
    stay = [next(c for c in callers if c.process == process) for process in sorted({c.process for c in callers})]
    for caller, task in zip(callers, talking, strict=True):
        if caller not in stay:
            task.cancel()
            await caller.close()
    shrunk_s = await reach(cluster, lambda states: states["RUNNING"] == 1)
    draining = (await asyncio.to_thread(cluster.states))["STOPPING"]
    await asyncio.sleep(5)
    still_talking = sum(not task.done() for caller, task in zip(callers, talking, strict=True) if caller in stay)
    for task in talking:
        task.cancel()
    await close_all(stay)
    ended_s = await reach(cluster, lambda states: states["STOPPING"] == 0)
    cut = sum(caller.cut for caller in callers)
    await asyncio.to_thread(cluster.end)
    return {
        "replicas at most": at_most, "20 conversations open after, s": grown_s, "calls refused meanwhile": refusals,
        "conversations of each": spread, "one replica takes calls after, s": shrunk_s,
        "replicas that finish their calls": draining, "conversations on all of them go on": still_talking,
        "last one ended after its call, s": ended_s, "cut": cut,
    }  # fmt: skip


async def upgrade(cluster: Cluster) -> dict[str, Any]:
    """A rolling upgrade under load."""
    await asyncio.to_thread(cluster.deploy, ReplicaLimits(1, 1), 8)
    callers = await open_all(cluster.address, 4)
    for caller in callers:
        await caller.turn()
    old = {caller.process for caller in callers}
    talking = [asyncio.create_task(keep_talking(caller)) for caller in callers]
    took_s = round(await asyncio.to_thread(cluster.deploy, ReplicaLimits(1, 1), 9), 1)
    newcomers = await open_all(cluster.address, 4)
    for caller in newcomers:
        await caller.turn()
    await asyncio.sleep(5)
    still_talking = sum(not task.done() for task in talking)
    for task in talking:
        task.cancel()
    await close_all(callers)
    ended_s = await reach(cluster, lambda states: states["STOPPING"] == 0)
    cut = sum(caller.cut for caller in (*callers, *newcomers))
    on_new = sum(caller.process not in old for caller in newcomers)
    await close_all(newcomers)
    await asyncio.to_thread(cluster.end)
    return {
        "new replica takes calls after, s": took_s, "new calls on it": on_new, "old conversations go on": still_talking,
        "old replica ended after its calls, s": ended_s, "cut": cut,
    }  # fmt: skip


PARTS: dict[str, Callable[[Cluster], Awaitable[dict[str, Any]]]] = {
    "load": load, "throughput": throughput, "kill": kill, "scaling": scaling, "upgrade": upgrade,
}  # fmt: skip


def main() -> int:
    """Run the parts; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lab.benchmarks.cluster", description="Prove the cluster.")
    parser.add_argument("--proxy", choices=("haproxy", "ray"), default="haproxy")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    cluster, found, cut = Cluster(arguments.proxy == "haproxy"), dict[str, Any](), 0
    try:
        for name in arguments.only:
            found[name] = asyncio.run(PARTS[name](cluster))  # type: ignore[arg-type]
            print(f"{name}: {json.dumps(found[name])}", flush=True)
            cut += found[name].get("cut", 0)
    finally:
        cluster.close()
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(cut > 0)


if __name__ == "__main__":
    sys.exit(main())
