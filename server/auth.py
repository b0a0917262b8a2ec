"""Reads from a request who sent it, for every protocol: the page's origin and the API keys that it offers."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
"""Host names of this machine that only its own programs can use."""

_KEY_SUBPROTOCOL = "openai-insecure-api-key."
"""Browsers cannot set headers on a websocket; the Realtime protocol passes the key as a subprotocol instead."""


def is_same_site(connection: HTTPConnection, allowed_origins: Collection[str], *, local_only: bool) -> bool:
    """Whether the page that sent a request or opened a websocket may use the server.

    Browsers send the page's origin. Other sites must not reach the server through a visitor's browser. Clients other
    than browsers send no origin and are allowed.

    Args:
        allowed_origins: origins of other sites that may connect. `*` allows all.
        local_only: whether the server listens on this machine only.
    """
    origin = connection.headers.get("origin")
    if origin is None or origin in allowed_origins or "*" in allowed_origins:
        return True
    page = urlsplit(origin)
    if local_only and page.hostname not in LOCAL_NAMES:
        return False  # DNS rebinding: a foreign host name that resolves to this machine
    return page.netloc == connection.headers.get("host")


def offered_keys(connection: HTTPConnection) -> list[str]:
    """The keys that a client sent, as a bearer token or as a subprotocol."""
    offered = connection.scope.get("subprotocols", [])
    candidates = [name.removeprefix(_KEY_SUBPROTOCOL) for name in offered if name.startswith(_KEY_SUBPROTOCOL)]
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        candidates.append(token.strip())
    return candidates
