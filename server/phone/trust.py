"""Whether a request really comes from the carrier: signatures over the address that it called, or a shared secret.

A request is let in when one of the configured ways agrees; with none configured, everybody is.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

_TICKET_S = 120
"""How long a stream may be opened after the webhook that announced it; carriers take a second or two."""

_OLDEST_S = 300
"""Age of a signed webhook that is still believed: Telnyx's own advice against replays."""


@dataclass(frozen=True)
class Asked:
    """A request as the carrier made it.

    Attributes:
        urls: the address in every form that the carrier may have signed; proxies hide which it was.
        headers: with names in lower case.
        query: parameters of the address; form: of the body.
        ticket: the last part of the address where that may be a secret.
    """

    method: str
    urls: Sequence[str]
    headers: Mapping[str, str]
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    ticket: str = ""


@dataclass(frozen=True)
class Trust:
    """What is configured.

    Attributes:
        twilio: Auth Token of the account; plivo: the same of Plivo's.
        telnyx: the account's public key, base64 of 32 bytes.
        shared: secrets of one's own, for everything else.
    """

    twilio: str = ""
    plivo: str = ""
    telnyx: str = ""
    shared: tuple[str, ...] = ()
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def __post_init__(self) -> None:
        if self.telnyx:
            try:
                Ed25519PublicKey.from_public_bytes(base64.b64decode(self.telnyx, validate=True))
            except (ValueError, binascii.Error):
                raise ValueError(
                    "the Telnyx public key must be 32 bytes in base64: copy it from Mission Control, Keys & Credentials"
                ) from None

    @property
    def configured(self) -> bool:
        """Whether anybody is turned away."""
        return bool(self.twilio or self.plivo or self.telnyx or self.shared)

    def believes(self, asked: Asked) -> bool:
        """Whether a request may come in."""
        if not self.configured:
            return True
        return (
            (bool(self.twilio) and self._twilio_signed(asked))
            or (bool(self.plivo) and self._plivo_signed(asked))
            or (bool(self.telnyx) and self._telnyx_signed(asked))
            or (bool(self.shared) and self._knows_secret(asked))
            or self._has_ticket(asked.ticket)
        )

    def ticket(self) -> str:
        """Lets one stream in, for a short while: part of the address that an answered webhook names."""
        until = str(int(time.time()) + _TICKET_S)
        return f"{until}-{self._seal(until)}"

    @property
    def audiosocket_id(self) -> uuid.UUID | None:
        """The UUID that AudioSocket calls must have: it is all that they bring. None where everybody may call."""
        return uuid.uuid5(uuid.NAMESPACE_URL, f"rejoinder:{self.shared[0]}") if self.shared else None

    def _seal(self, until: str) -> str:
        return hmac.new(self._key, until.encode(), hashlib.sha256).hexdigest()[:32]

    def _has_ticket(self, ticket: str) -> bool:
        until, _, seal = ticket.partition("-")
        return until.isdecimal() and _same(seal, self._seal(until)) and time.time() <= int(until)

    def _twilio_signed(self, asked: Asked) -> bool:
        """base64(HMAC-SHA1(token, URL and the form's names and values)): twilio.com/docs/usage/security."""
        given = asked.headers.get("x-twilio-signature", "")
        said = "".join(name + asked.form[name] for name in sorted(asked.form))
        return any(_same(given, _mac(self.twilio, url + said, "sha1")) for url in asked.urls)

    def _plivo_signed(self, asked: Asked) -> bool:
        """base64(HMAC-SHA256(token, URL, form and nonce)): plivo-python's signature_v3; there may be several."""
        nonce = asked.headers.get("x-plivo-signature-v3-nonce", "")
        given = [one.strip() for one in asked.headers.get("x-plivo-signature-v3", "").split(",")]
        known = [_mac(self.plivo, f"{_plivo_said(url, asked)}.{nonce}", "sha256") for url in asked.urls]
        return bool(nonce) and any(_same(one, other) for one in given for other in known)

    def _telnyx_signed(self, asked: Asked) -> bool:
        """Ed25519 over the time and the body: developers.telnyx.com, webhook signing. Only webhooks are signed."""
        at = asked.headers.get("telnyx-timestamp", "")
        if not at.isdecimal() or abs(time.time() - int(at)) > _OLDEST_S or not asked.body:
            return False
        try:
            signature = base64.b64decode(asked.headers.get("telnyx-signature-ed25519", ""), validate=True)
            key = Ed25519PublicKey.from_public_bytes(base64.b64decode(self.telnyx))
            key.verify(signature, at.encode() + b"|" + asked.body)
        except (InvalidSignature, ValueError, binascii.Error):
            return False
        return True

    def _knows_secret(self, asked: Asked) -> bool:
        """The secret as `?token=`, as the address' last part, as a password, or as Telnyx's streaming token."""
        scheme, _, rest = asked.headers.get("authorization", "").partition(" ")
        given = [asked.query.get("token", ""), asked.ticket, asked.headers.get("x-telnyx-streaming-auth-token", "")]
        if scheme.lower() == "bearer":
            given.append(rest.strip())
        elif scheme.lower() == "basic":
            with suppress(ValueError):
                given.append(base64.b64decode(rest, validate=True).decode().partition(":")[2])
        return any(_same(one, secret) for one in given for secret in self.shared)


def addresses(scheme: str, host: str, path: str, query: str, public: str = "") -> list[str]:
    """The forms of an address that a carrier may have signed: behind a proxy the scheme is not known here.

    Args:
        scheme: ws or http, as it was asked for, with or without s.
        public: where carriers find this server, like https://phone.example.org, when Host does not tell.
    """
    kind = "ws" if scheme.startswith("ws") else "http"
    hosts = [host]
    if public:
        hosts.insert(0, urlsplit(public).netloc)
    found = []
    for one in hosts:
        bare = one.removesuffix(":443").removesuffix(":80")
        for secure, port in (("s", ":443"), ("", ":80")):
            found += [
                urlunsplit((kind + secure, form, path, query, "")) for form in dict.fromkeys((one, bare, bare + port))
            ]
    return list(dict.fromkeys(found))


def _plivo_said(url: str, asked: Asked) -> str:
    """The address as Plivo signs it: its query sorted, and behind a dot the form's names and values, sorted too. The
    dot is missing where there is no query."""
    parts = urlsplit(url)
    query = sorted(parse_qsl(parts.query, keep_blank_values=True))
    base = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
    said = "&".join(f"{name}={value}" for name, value in query)
    if asked.method == "POST" and asked.form:
        form = "".join(name + asked.form[name] for name in sorted(asked.form))
        return f"{base}?{said}.{form}" if said else f"{base}?{form}"
    return f"{base}?{said}" if said else base


def _mac(key: str, said: str, digest: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), said.encode(), digest).digest()).decode()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
