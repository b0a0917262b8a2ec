"""Reads from a request who sent it, for every protocol: a user of this machine, the page's origin, the API keys."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from agent.remote.settings import is_loopback

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
    """The keys that a client sent, as a bearer token or as a subprotocol."""
    offered = connection.scope.get("subprotocols", [])
    candidates = [name.removeprefix(_KEY_SUBPROTOCOL) for name in offered if name.startswith(_KEY_SUBPROTOCOL)]
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        candidates.append(token.strip())
    return candidates
