"""Authentication of carriers: a signature over the requested URL, or a shared secret.

A request is accepted if any configured method accepts it. If none is configured, none is accepted here.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import secrets
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from cryptography.exceptions import InvalidSignature
from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from server.telephony.dialect import parse_count

TICKET_LIFETIME_S = 120
"""How long a stream may be opened after the webhook that announced it; carriers take a second or two."""

_MAX_CALLER_CHARACTERS = 100
"""Of a number, or of a SIP address in its place, that a ticket holds."""

_MAX_WEBHOOK_AGE_S = 300
"""Maximum age of a signed webhook: Telnyx's own advice against replays."""


@dataclass(frozen=True)
class CarrierRequest:
    """A request as the carrier made it.

    Attributes:
        urls: every form of the URL that the carrier may have signed; a proxy hides which one it was.
        headers: with names in lower case.
        query: parameters of the URL.
        form: parameters of the body.
        ticket: the last segment of the path, where that may be a ticket or a secret.
    """

    method: str
    urls: Sequence[str]
    headers: Mapping[str, str]
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    ticket: str = ""


@dataclass(frozen=True)
class Ticket:
    """What the server knows of a call whose webhook it has accepted.

    Attributes:
        id: of this ticket, to see that it is used once.
        caller: the number that the webhook named; empty if it named none.
        key: name of the API key that the webhook carried; empty if it carried none.
    """

    id: str
    caller: str = ""
    key: str = ""


@dataclass(frozen=True)
class CarrierAuth:
    """The configured credentials.

    Attributes:
        twilio_token: Auth Token of the Twilio account.
        plivo_token: Auth Token of the Plivo account.
        telnyx_public_key: public key of the Telnyx account, base64 of 32 bytes.
        shared_secrets: secrets chosen by the operator, for every other client.
    """

    twilio_token: str = ""
    plivo_token: str = ""
    telnyx_public_key: str = ""
    shared_secrets: tuple[str, ...] = ()
    _ticket_key: bytes = field(default_factory=Fernet.generate_key, repr=False)

    def __post_init__(self) -> None:
        if self.telnyx_public_key:
            try:
                Ed25519PublicKey.from_public_bytes(base64.b64decode(self.telnyx_public_key, validate=True))
            except (ValueError, binascii.Error):
                raise ValueError(
                    "the Telnyx public key must be 32 bytes in base64: copy it from Mission Control, Keys & Credentials"
                ) from None

    @property
    def configured(self) -> bool:
        """Whether a carrier can show who it is."""
        return bool(self.twilio_token or self.plivo_token or self.telnyx_public_key or self.shared_secrets)

    def accepts(self, request: CarrierRequest) -> bool:
        """Whether a request is authorized."""
        return self.signed(request) or (bool(self.shared_secrets) and self._has_shared_secret(request))

    def signed(self, request: CarrierRequest) -> bool:
        """Whether a request is authorized by what nobody can guess: a carrier's signature."""
        return (
            (bool(self.twilio_token) and self._is_signed_by_twilio(request))
            or (bool(self.plivo_token) and self._is_signed_by_plivo(request))
            or (bool(self.telnyx_public_key) and self._is_signed_by_telnyx(request))
        )

    def issue_ticket(self, caller: str = "", key: str = "") -> str:
        """A ticket that authorizes one stream, for a short time. It is part of the stream URL in a webhook's response,
        and encrypted, because proxies log URLs.

        Args:
            caller, key: as `Ticket` has them.
        """
        content = json.dumps([secrets.token_hex(16), caller[:_MAX_CALLER_CHARACTERS], key]).encode()
        return Fernet(self._ticket_key).encrypt(content).decode().rstrip("=")

    def read_ticket(self, text: str) -> Ticket | None:
        """What `issue_ticket` wrote into a ticket; None if it did not make this one, or too long ago."""
        padded = text.encode() + b"=" * (-len(text) % 4)
        try:
            return Ticket(*json.loads(Fernet(self._ticket_key).decrypt(padded, TICKET_LIFETIME_S)))
        except InvalidToken:
            return None

    @property
    def audiosocket_uuid(self) -> uuid.UUID | None:
        """The UUID that AudioSocket calls must send, as they carry nothing else. None if every call is accepted."""
        return uuid.uuid5(uuid.NAMESPACE_URL, f"rejoinder:{self.shared_secrets[0]}") if self.shared_secrets else None

    def _is_signed_by_twilio(self, request: CarrierRequest) -> bool:
        """base64(HMAC-SHA1(token, URL and the form's names and values)): twilio.com/docs/usage/security."""
        signature = request.headers.get("x-twilio-signature", "")
        form = "".join(name + request.form[name] for name in sorted(request.form))
        return any(_equal(signature, _base64_hmac(self.twilio_token, url + form, "sha1")) for url in request.urls)

    def _is_signed_by_plivo(self, request: CarrierRequest) -> bool:
        """base64(HMAC-SHA256(token, URL, form and nonce)): plivo-python's signature_v3. The header may hold several
        signatures."""
        nonce = request.headers.get("x-plivo-signature-v3-nonce", "")
        signatures = [part.strip() for part in request.headers.get("x-plivo-signature-v3", "").split(",")]
        expected = [
            _base64_hmac(self.plivo_token, f"{_plivo_signed_text(url, request)}.{nonce}", "sha256")
            for url in request.urls
        ]
        return bool(nonce) and any(_equal(a, b) for a in signatures for b in expected)

    def _is_signed_by_telnyx(self, request: CarrierRequest) -> bool:
        """Ed25519 over the timestamp and the body: developers.telnyx.com, webhook signing. Only webhooks are signed."""
        timestamp = request.headers.get("telnyx-timestamp", "")
        signed_at = parse_count(timestamp)
        if signed_at is None or abs(time.time() - signed_at) > _MAX_WEBHOOK_AGE_S or not request.body:
            return False
        try:
            signature = base64.b64decode(request.headers.get("telnyx-signature-ed25519", ""), validate=True)
            key = Ed25519PublicKey.from_public_bytes(base64.b64decode(self.telnyx_public_key))
            key.verify(signature, timestamp.encode() + b"|" + request.body)
        except (InvalidSignature, ValueError, binascii.Error):
            return False
        return True

    def _has_shared_secret(self, request: CarrierRequest) -> bool:
        offered = offered_secrets(request)
        return any(_equal(candidate, secret) for candidate in offered for secret in self.shared_secrets)


def offered_secrets(request: CarrierRequest) -> list[str]:
    """The secrets that a request carries: `?token=`, the URL's last path segment, a bearer token, a password, or
    Telnyx's streaming token."""
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    offered = [
        request.query.get("token", ""),
        request.ticket,
        request.headers.get("x-telnyx-streaming-auth-token", ""),
    ]
    if scheme.lower() == "bearer":
        offered.append(credentials.strip())
    elif scheme.lower() == "basic":
        with suppress(ValueError):
            offered.append(base64.b64decode(credentials, validate=True).decode().partition(":")[2])
    return [secret for secret in offered if secret]


def candidate_urls(scheme: str, host: str, path: str, query: str, public_url: str = "") -> list[str]:
    """The forms of a URL that a carrier may have signed. Behind a proxy, the original scheme is unknown.

    Args:
        scheme: ws or http, as requested, with or without s.
        public_url: where carriers reach this server, like https://phone.example.org, if Host does not tell.
    """
    base_scheme = "ws" if scheme.startswith("ws") else "http"
    hosts = [host]
    if public_url:
        hosts.insert(0, urlsplit(public_url).netloc)
    urls = []
    for name in filter(_is_host, hosts):
        bare = name.removesuffix(":443").removesuffix(":80")
        for secure, port in (("s", ":443"), ("", ":80")):
            urls += [
                urlunsplit((base_scheme + secure, netloc, path, query, ""))
                for netloc in dict.fromkeys((name, bare, bare + port))
            ]
    return list(dict.fromkeys(urls))


def _is_host(name: str) -> bool:
    """Whether a `Host` header can be part of a URL. No carrier signs another one."""
    try:
        return urlsplit(f"//{name}").netloc == name
    except ValueError:  # such as half of an IPv6 address
        return False


def _plivo_signed_text(url: str, request: CarrierRequest) -> str:
    """The URL as Plivo signs it: with its query sorted, then a dot and the form's sorted names and values. The dot is
    missing if there is no query."""
    parts = urlsplit(url)
    pairs = sorted(parse_qsl(parts.query, keep_blank_values=True))
    base = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
    query = "&".join(f"{name}={value}" for name, value in pairs)
    if request.method == "POST" and request.form:
        form = "".join(name + request.form[name] for name in sorted(request.form))
        return f"{base}?{query}.{form}" if query else f"{base}?{form}"
    return f"{base}?{query}" if query else base


def _base64_hmac(key: str, text: str, digest: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), text.encode(), digest).digest()).decode()


def _equal(a: str, b: str) -> bool:
    return hmac.compare_digest(a.encode(), b.encode())
