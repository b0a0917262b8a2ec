"""Who may call which route: the table in docs/guide/security.md, held against the server.

The set-up is the telephony guide's own: a tunnel or proxy on the same machine forwards to a server on 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Mount, Route, WebSocketRoute
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from model.engine.engine import Engine
from server import auth
from server.access.admission import Admission
from server.access.keys import ApiKeys, KeyStore
from server.app import build_app
from server.auth import LocalAccess
from server.context import ServerContext
from server.serving.run import bind, listens_on_loopback
from server.serving.service import checked_access
from server.serving.settings import ServeSettings
from server.telephony.auth import CarrierAuth
from server.telephony.routes import TelephonySettings
from tests.fakes import FakeLanguageModel, fake_speech_models
from tests.real_time import HANG_S
from tests.server.live_server import serving

PAGE = Path(__file__).parent.parent / "docs" / "guide" / "security.md"
CALLERS = ("nobody", "local", "key", "admin", "carrier")


def access_table() -> dict[tuple[str, str], str]:
    """(method, path) → who may call it, from the page's table."""
    table = {}
    for line in PAGE.read_text().splitlines():
        if (row := re.fullmatch(r"\| `([A-Z, ]+) (\S+)` \| (.*?) \|.*", line)) is not None:
            methods, path, who = row.groups()
            table.update({(method, path): who for method in methods.split(", ")})
    return table


TABLE = access_table()

ALLOWED = {
    "anybody": {"nobody", "local", "key", "admin", "carrier"},
    "local, key": {"local", "key", "admin"},
    "local, admin key": {"local", "admin"},
    "local, key, carrier": {"local", "key", "admin", "carrier"},
    "local, secret": {"local", "carrier"},
}
"""The page's words for who may call a route, and the callers of this test that they let in. A local caller comes
without a key to a server that has none; the others through a tunnel to one with keys and a carrier's credentials."""

OF_RAY = {("GET", "/-/healthz"), ("GET", "/-/routes")}
"""Ray's proxies answer these themselves."""

AUDIOSOCKET = ("TCP", "AudioSocket")


@dataclass(frozen=True)
class Doors:
    """A running server and its keys."""

    address: str
    user: str = ""
    admin: str = ""


@contextmanager
def _with_keys(engine: Engine, folder: Path) -> Iterator[Doors]:
    store = KeyStore(folder / "keys.sqlite")
    user, admin = store.add("user"), store.add("admin", admin=True)
    settings = TelephonySettings(carrier_auth=CarrierAuth(shared_secrets=("s3cret",)), public_url="https://phone.test")
    admission = Admission(16, ApiKeys(store=store))
    with serving(telephony=settings, admission=admission, engine=engine, local=LocalAccess(enabled=False)) as address:
        yield Doors(address, user, admin)


@pytest.fixture(scope="module")
def doors(tiny_engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Doors]]:
    """A server as the telephony guide sets it up, one without keys that only this machine may use, and one for calls
    that is not told its public name. None minds how often somebody without access knocks."""
    secret = TelephonySettings(carrier_auth=CarrierAuth(shared_secrets=("s3cret",)))
    with (
        pytest.MonkeyPatch.context() as patch,
        _with_keys(tiny_engine, tmp_path_factory.mktemp("keys")) as outside,
        serving(engine=tiny_engine) as local,
        serving(telephony=secret, engine=tiny_engine, local=LocalAccess(enabled=False)) as nameless,
    ):
        patch.setattr(auth, "_FREE_GUESSES", 1 << 20)
        yield {"outside": outside, "local": Doors(local), "nameless": Doors(nameless)}


def routes_of(app: Any) -> set[tuple[str, str]]:
    found = set()
    for route in app.routes:
        if isinstance(route, WebSocketRoute):
            found.add(("WS", route.path))
        elif isinstance(route, Route):
            found |= {(method, route.path) for method in (route.methods or {"GET"}) - {"HEAD"}}
        else:
            assert isinstance(route, Mount)
            found.add(("GET", f"{route.path}/"))
    return found


def test_the_table_has_every_route_and_listener(tiny_engine: Engine) -> None:
    app = build_app(ServerContext(FakeLanguageModel, fake_speech_models(), "tiny", engine=tiny_engine))
    assert set(TABLE) == routes_of(app) | OF_RAY | {AUDIOSOCKET}
    assert set(TABLE.values()) <= set(ALLOWED)


def headers_of(caller: str, doors: Doors) -> dict[str, str]:
    """A carrier shows its secret; people from outside come with the public name, as a tunnel forwards it."""
    if caller == "local":
        return {}
    keys = {"key": doors.user, "admin": doors.admin, "carrier": "s3cret"}
    authorization = {"Authorization": f"Bearer {keys[caller]}"} if caller in keys else {}
    return {"Host": "phone.test", "X-Forwarded-For": "203.0.113.7", **authorization}


def concrete(path: str) -> str:
    """A path with its parameters filled in."""
    return re.sub(r"\{[^}]*\}", "unknown", path)


async def is_let_in(method: str, path: str, doors: Doors, headers: dict[str, str]) -> bool:
    """Whether a request got further than the check of who sent it."""
    if method == "WS":
        host, _, port = doors.address.partition(":")
        name = headers.get("Host", doors.address)
        others = {key: value for key, value in headers.items() if key != "Host"}
        try:
            async with connect(
                f"ws://{name}{concrete(path)}",
                host=host,
                port=int(port),
                additional_headers=others,
                open_timeout=HANG_S,
            ) as websocket:
                if path.startswith("/phone"):
                    return True
                event = json.loads(await asyncio.wait_for(websocket.recv(), HANG_S))
                return bool(event["type"] == "session.created")
        except InvalidStatus as refused:
            assert refused.response.status_code == 403
            return False
    async with httpx.AsyncClient(base_url=f"http://{doors.address}", timeout=HANG_S, verify=False) as web:
        response = await web.request(method, concrete(path), headers=headers, content=b"")
    return response.status_code not in (401, 403)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize(("method", "path"), sorted(set(TABLE) - OF_RAY - {AUDIOSOCKET}))
async def test_only_the_callers_in_the_table_are_let_in(
    doors: dict[str, Doors], method: str, path: str, caller: str
) -> None:
    server = doors["local" if caller == "local" else "outside"]
    allowed = caller in ALLOWED[TABLE[method, path]]
    assert await is_let_in(method, path, server, headers_of(caller, server)) == allowed
    if path == "/drain":
        admin = headers_of("admin" if server.admin else "local", server)
        assert await is_let_in("DELETE", path, server, admin)


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8000"},
        {"Host": "localhost.evil.example"},
        {"Host": "["},
        {"X-Forwarded-For": "203.0.113.7"},
        {"X-Forwarded-For": "127.0.0.1"},
        {"X-Forwarded-Host": "phone.example.org"},
        {"Forwarded": "for=127.0.0.1"},
        {"Via": "1.1 proxy"},
        {"CF-Connecting-IP": "203.0.113.7"},
        {"X-Real-IP": "203.0.113.7"},
        {"Origin": "https://evil.example"},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/metrics"), ("POST", "/drain"), ("WS", "/v1/realtime"), ("WS", "/phone")]
)
async def test_a_request_that_came_through_something_else_is_not_local(
    doors: dict[str, Doors], method: str, path: str, headers: dict[str, str]
) -> None:
    if method == "WS" and headers.get("Host") == "[":
        headers = {"Host": "x.example"}  # the client would not send the other one
    assert not await is_let_in(method, path, doors["local"], headers)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8000", "localhost:1", "[::1]:8000", "LOCALHOST"])
async def test_every_name_of_this_machine_is_local(doors: dict[str, Doors], host: str) -> None:
    assert await is_let_in("GET", "/metrics", doors["local"], {"Host": host})


ODD_HOSTS = {
    "none": b"",
    "empty": b"Host:\r\n",
    "bracket": b"Host: [\r\n",
    "open": b"Host: [::1\r\n",
    "space": b"Host: a b\r\n",
    "path": b"Host: a@b/c?d#e\r\n",
    "bytes": b"Host: \xff\xfe\r\n",
    "long": b"Host: " + b"x" * 8000 + b"\r\n",
    "too long": b"Host: " + b"x" * (1 << 17) + b"\r\n",
    "two": b"Host: 127.0.0.1\r\nHost: evil.example\r\n",
}
"""No client sends these, so the test writes them to the socket."""

NO_REQUESTS = {"none", "two", "too long"}
"""HTTP/1.1 wants one, and a request's headers have a limit."""


async def status_of(method: str, path: str, doors: Doors, host: bytes, authorization: str = "") -> int:
    """The status of a response to a request with these `Host` headers."""
    name, _, port = doors.address.partition(":")
    lines = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
    lines += "Connection: Upgrade\r\n" if method == "WS" else "Connection: close\r\nContent-Length: 0\r\n"
    if authorization:
        lines += f"Authorization: {authorization}\r\n"
    async with asyncio.timeout(HANG_S):
        reader, writer = await asyncio.open_connection(name, int(port))
        try:
            verb = "GET" if method == "WS" else method
            writer.write(f"{verb} {concrete(path)} HTTP/1.1\r\n".encode() + host + f"{lines}\r\n".encode())
            return int((await reader.readline()).split()[1])
        finally:
            writer.close()


@pytest.mark.parametrize("host", ODD_HOSTS)
async def test_a_host_that_is_none_lets_nobody_in_and_breaks_nothing(doors: dict[str, Doors], host: str) -> None:
    local, nameless = doors["local"], doors["nameless"]
    requests = [
        ("GET", "/healthz", local, "", 200),
        ("GET", "/metrics", local, "", 401),
        ("POST", "/v1/chat/completions", local, "", 401),
        ("WS", "/phone", local, "", 403),
        ("POST", "/phone/twilio.xml", local, "", 403),
        ("POST", "/phone/twilio.xml", nameless, "Bearer s3cret", 200),
        ("WS", "/phone", nameless, "Bearer s3cret", 101),
    ]
    for method, path, server, authorization, status in requests:
        answered = await status_of(method, path, server, ODD_HOSTS[host], authorization)
        assert answered == (400 if host in NO_REQUESTS else status), (method, path)


@pytest.mark.parametrize("settings", [{"carrier": True}, {"public_url": True}], ids=str)
async def test_a_proxy_that_hides_itself_lets_nobody_in(settings: dict[str, bool]) -> None:
    """nginx with a bare `proxy_pass` sends a loopback Host and no forwarding header. What the server knows of a carrier
    or of a public URL tells that somebody else may be behind it."""
    configured = ServeSettings(
        twilio_token="token" if settings.get("carrier") else "",
        public_url="https://phone.example.org" if settings.get("public_url") else "",
    )
    telephony = TelephonySettings(carrier_auth=configured.carrier_auth, public_url=configured.public_url)
    with serving(telephony=telephony, local=configured.local_access(loopback=True)) as address:
        for method, path in (
            ("GET", "/metrics"),
            ("POST", "/drain"),
            ("POST", "/v1/audio/speech"),
            ("WS", "/v1/realtime"),
            ("WS", "/phone"),
        ):
            assert not await is_let_in(method, path, Doors(address), {})
        async with httpx.AsyncClient(base_url=f"http://{address}", timeout=HANG_S, verify=False) as web:
            assert (await web.get("/healthz")).json() == {"status": "ok"}
            assert (await web.get("/readyz")).json() == {"status": "ready"}
            assert (await web.get("/")).is_success  # the page, with the field for a key


async def test_audiosocket_calls_need_the_secret_wherever_local_programs_are_not_trusted(tmp_path: Path) -> None:
    def settings(**telephony: Any) -> ServeSettings:
        return ServeSettings(audiosocket=0, data=tmp_path, **telephony)

    assert TABLE[AUDIOSOCKET] == "local, secret"
    checked_access(settings(), loopback=True)
    checked_access(settings(phone_secret="s"), loopback=True)
    for refused in (settings(public_url="https://phone.example.org"), settings(twilio_token="token")):
        with pytest.raises(ValueError, match="set --phone-secret"):
            checked_access(refused, loopback=True)
    with pytest.raises(ValueError):
        checked_access(settings(), loopback=False)


def test_the_socket_of_audiosocket_listens_where_the_server_does() -> None:
    with bind("127.0.0.1", 0) as local, socket.socket() as everywhere:
        everywhere.bind(("0.0.0.0", 0))
        assert listens_on_loopback(local) and not listens_on_loopback(everywhere)
