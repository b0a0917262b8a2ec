"""Errors between a simulated client and the server under test."""

from __future__ import annotations

import ssl

from websockets.exceptions import InvalidStatus


class ServerUnavailable(Exception):
    """The server cannot be measured; the message tells why."""


def without_query(url: str) -> str:
    """An address as messages repeat it: its query may have a secret."""
    return url.partition("?")[0]


def unreachable(url: str, error: Exception) -> ServerUnavailable:
    """The error of a connection that could not be opened, with what to do about it."""
    address = without_query(url)
    match error:
        case InvalidStatus():
            body = " ".join((error.response.body or b"").decode("utf-8", "replace").split())
            status = f"{error.response.status_code} {body}".strip()
            hint = {401: ": is the key right?", 403: ": are the path and the key right?", 404: ": is the path right?"}
            question = hint.get(error.response.status_code, "")
            return ServerUnavailable(f"{address} refused the connection ({status}){question}")
        case ssl.SSLCertVerificationError():
            return ServerUnavailable(
                f"the certificate of {address} cannot be verified ({error.verify_message}): connect by the name that "
                "it is for, and name the authority's certificate in SSL_CERT_FILE if it is your own"
            )
        case ssl.SSLError():
            return ServerUnavailable(
                f"the TLS handshake with {address} failed ({error.reason}): does it need ws:// instead of wss://?"
            )
    return ServerUnavailable(f"{address} cannot be reached ({error}): is the server running there?")
