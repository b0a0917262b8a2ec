"""Reads from a request who sent it, for every protocol: a user of this machine, the page's origin, the API keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from agent.addresses import is_loopback

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
"""Host names of this machine that only its own programs can use."""

_FORWARDED = frozenset(
    "forwarded via x-real-ip x-client-ip x-cluster-client-ip true-client-ip fly-client-ip fastly-client-ip "
    "cdn-loop".split()
)
_FORWARDED_PREFIXES = ("x-forwarded", "x-original-", "x-envoy-", "x-amzn-", "x-azure-", "cf-", "tailscale-", "ngrok-")
"""Headers that proxies, tunnels and content delivery networks add to what they pass on."""

_KEY_SUBPROTOCOL = "openai-insecure-api-key."
"""Browsers cannot set headers on a websocket; the Realtime protocol passes the key as a subprotocol instead."""


@dataclass(frozen=True)
class LocalAccess:
    """Which requests come from a user of this machine. They need no key while the server has none.

    A proxy that hides itself, such as nginx with a bare `proxy_pass`, sends this machine's name and no forwarding
    header, and cannot be told from a local program. So nobody is local as soon as anything says that there is one.

    Attributes:
        enabled: False where others can reach the server: it listens beyond this machine, has a public URL, or knows a
            carrier's credentials, whose calls arrive through a tunnel or proxy.
        host: a further name of this machine, as the operator gave it.
    """

    enabled: bool = True
    host: str = "localhost"

    def includes(self, connection: HTTPConnection) -> bool:
        """Whether a program or browser of this machine sent a request, and sent it here itself.

        The `Host` header has to name this machine, too: a page elsewhere can point a name of its own to 127.0.0.1 (DNS
        rebinding), and its requests then carry that name.
        """
        return (
            self.enabled
            and connection.client is not None
            and is_loopback(connection.client.host)
            and self._names_this_machine(connection.headers.getlist("host"))
            and not any(map(_is_forwarding, connection.headers))
        )

    def _names_this_machine(self, hosts: list[str]) -> bool:
        if len(hosts) != 1:
            return False
        try:
            name = urlsplit(f"//{hosts[0]}").hostname or ""
        except ValueError:
            return False
        return name in ("localhost", self.host.lower()) or is_loopback(name)


_FREE_GUESSES, _MAX_PAUSE_S = 10, 60.0
"""Wrong secrets that an address may send without a pause; after each further one the pause doubles, from 1 s."""

_FORGET_S, _MAX_ADDRESSES = 3600.0, 10_000
"""How long wrong secrets count after the last one, and of how many addresses."""


class WrongSecrets:
    """Counts wrong secrets by address, so that nobody can try many. During a pause, no secret of an address is looked
    at that people have chosen. Random ones always are: nobody guesses them, and those who share a proxy's address are
    not shut out by each other.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._wrong = clock, dict[str, tuple[int, float]]()

    def pausing(self, address: str) -> bool:
        """Whether no chosen secret of this address is looked at now."""
        wrong, last = self._wrong.get(_network(address), (0, 0.0))
        pause_s = min(_MAX_PAUSE_S, 2.0 ** min(wrong - _FREE_GUESSES, 10))
        return wrong >= _FREE_GUESSES and self._clock() < last + pause_s

    def add(self, address: str) -> None:
        """An address has sent a wrong secret."""
        now, network = self._clock(), _network(address)
        wrong, last = self._wrong.pop(network, (0, now))
        self._wrong[network] = (wrong + 1 if now < last + _FORGET_S else 1, now)
        if len(self._wrong) > _MAX_ADDRESSES:
            del self._wrong[next(iter(self._wrong))]


def client_address(connection: HTTPConnection) -> str:
    """The address that a request comes from, a proxy's included; empty if it is unknown."""
    return connection.client.host if connection.client is not None else ""


def _network(address: str) -> str:
    """What one person has: an address of IPv4, and the 64 bits that a provider gives out of IPv6."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    return str(ip_network((parsed, 64), strict=False)) if parsed.version == 6 else address


def _is_forwarding(header: str) -> bool:
    return header in _FORWARDED or header.startswith(_FORWARDED_PREFIXES)


def is_same_site(connection: HTTPConnection, allowed_origins: Collection[str]) -> bool:
    """Whether the page that sent a request or opened a websocket may use the server.

    Browsers send the page's origin. Other sites must not reach the server through a visitor's browser. Clients other
    than browsers send no origin and are allowed.

    Args:
        allowed_origins: origins of other sites that may connect. `*` allows all.
    """
    origin = connection.headers.get("origin")
    if origin is None or origin in allowed_origins or "*" in allowed_origins:
        return True
    try:
        return urlsplit(origin).netloc == connection.headers.get("host")
    except ValueError:
        return False


def offered_keys(connection: HTTPConnection) -> list[str]:
    """The keys that a client sent, as a bearer token or as a subprotocol. Of subprotocols the first counts: a handshake
    holds thousands, and each would be a guess that costs nothing."""
    offered = connection.scope.get("subprotocols", [])
    candidates = [name.removeprefix(_KEY_SUBPROTOCOL) for name in offered if name.startswith(_KEY_SUBPROTOCOL)][:1]
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        candidates.append(token.strip())
    return candidates
