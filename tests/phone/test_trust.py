"""Who may call: signatures checked against the carriers' own libraries, secrets, tickets, and what is no proof."""

from __future__ import annotations

import base64
import time
import uuid
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from server.phone.trust import Asked, Trust, addresses

TOKEN = "0123456789abcdef0123456789abcdef"
WSS = "wss://phone.example.org/phone"


def asked(url: str = WSS, method: str = "GET", **more: Any) -> Asked:
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    path, _, query = path.partition("?")
    headers = {name.lower(): value for name, value in more.pop("headers", {}).items()}
    pairs = dict(pair.split("=") for pair in query.split("&") if pair)
    # As it arrives behind a proxy that ended TLS.
    seen = addresses("ws" if scheme == "wss" else "http", host, f"/{path}", query)
    return Asked(method, seen, headers, pairs, **more)


@pytest.mark.parametrize("url", [WSS, "wss://phone.example.org:8443/phone", "wss://phone.example.org:443/phone"])
def test_twilios_signature_of_an_upgrade(url: str) -> None:
    validator = pytest.importorskip("twilio.request_validator").RequestValidator(TOKEN)
    signature = validator.compute_signature(url, {})
    assert validator.validate(url, {}, signature)
    trust = Trust(twilio=TOKEN)
    assert trust.believes(asked(url, headers={"X-Twilio-Signature": signature}))
    for wrong in (signature[:-2] + "x=", "", "é"):
        assert not trust.believes(asked(url, headers={"X-Twilio-Signature": wrong}))
    assert not trust.believes(asked("wss://phone.example.org/elsewhere", headers={"X-Twilio-Signature": signature}))
    assert not Trust(twilio="another").believes(asked(url, headers={"X-Twilio-Signature": signature}))
    assert not trust.believes(asked(url))


def test_twilios_signature_of_a_webhook() -> None:
    validator = pytest.importorskip("twilio.request_validator").RequestValidator(TOKEN)
    url, form = (
        "https://phone.example.org/phone/twilio.xml?greeting=Hi",
        {"From": "+1555", "CallSid": "CA1", "To": "+1"},
    )
    headers = {"X-Twilio-Signature": validator.compute_signature(url, form)}
    assert Trust(twilio=TOKEN).believes(asked(url, "POST", headers=headers, form=form))
    assert not Trust(twilio=TOKEN).believes(asked(url, "POST", headers=headers, form={**form, "From": "+1666"}))


def test_the_signature_holds_where_the_proxy_hides_the_host() -> None:
    validator = pytest.importorskip("twilio.request_validator").RequestValidator(TOKEN)
    seen = addresses("ws", "127.0.0.1:8000", "/phone", "", "https://phone.example.org")
    headers = {"x-twilio-signature": validator.compute_signature(WSS, {})}
    assert Trust(twilio=TOKEN).believes(Asked("GET", seen, headers))


@pytest.mark.parametrize(
    ("method", "url", "form"),
    [
        ("GET", WSS, {}),
        ("GET", "https://phone.example.org/phone/plivo.xml?b=2&a=1", {}),
        ("POST", "https://phone.example.org/phone/plivo.xml", {"From": "1555", "CallUUID": "u"}),
        ("POST", "https://phone.example.org/phone/plivo.xml?b=2&a=1", {"From": "1555", "CallUUID": "u"}),
    ],
)
def test_plivos_signature(method: str, url: str, form: dict[str, str]) -> None:
    theirs = pytest.importorskip("plivo.utils.signature_v3")
    if method == "GET":
        base = theirs.construct_get_url(url, dict(form)).decode()
    else:
        base = theirs.construct_post_url(url, dict(form)).decode()
    signature = theirs.get_signature_v3(TOKEN.encode(), base.encode(), b"nonce").decode()
    headers = {"X-Plivo-Signature-V3": f"older,{signature}", "X-Plivo-Signature-V3-Nonce": "nonce"}
    assert Trust(plivo=TOKEN).believes(asked(url, method, headers=headers, form=form))
    assert not Trust(plivo=TOKEN).believes(asked(url, method, headers={**headers, "X-Plivo-Signature-V3-Nonce": "n"}))
    assert not Trust(plivo="another").believes(asked(url, method, headers=headers, form=form))


def signed_by_telnyx(body: bytes, at: int) -> tuple[str, dict[str, str]]:
    key = Ed25519PrivateKey.generate()
    signature = key.sign(f"{at}|".encode() + body)
    headers = {"telnyx-timestamp": str(at), "telnyx-signature-ed25519": base64.b64encode(signature).decode()}
    return base64.b64encode(key.public_key().public_bytes_raw()).decode(), headers


def test_telnyxs_signature_of_a_webhook() -> None:
    body = b"From=%2B1555&CallSid=v3"
    public, headers = signed_by_telnyx(body, int(time.time()))
    trust, url = Trust(telnyx=public), "https://phone.example.org/phone/telnyx.xml"
    assert trust.believes(asked(url, "POST", headers=headers, body=body))
    assert not trust.believes(asked(url, "POST", headers=headers, body=body + b"&x=1"))
    assert not trust.believes(asked(url, "POST", headers={}, body=body))
    old, stale = signed_by_telnyx(body, int(time.time()) - 1000)
    assert not Trust(telnyx=old).believes(asked(url, "POST", headers=stale, body=body))


def test_a_telnyx_key_that_is_none_is_said_at_the_start() -> None:
    with pytest.raises(ValueError, match="32 bytes in base64"):
        Trust(telnyx="not a key")


@pytest.mark.parametrize(
    ("given", "welcome"),
    [
        ({"query": {"token": "s3"}}, True),
        ({"ticket": "s3"}, True),
        ({"headers": {"authorization": "Bearer s3"}}, True),
        ({"headers": {"authorization": "Basic " + base64.b64encode(b"me:s3").decode()}}, True),
        ({"headers": {"x-telnyx-streaming-auth-token": "s3"}}, True),
        ({"headers": {"authorization": "Basic %%%"}}, False),
        ({"query": {"token": "s4"}}, False),
        ({"query": {"token": ""}}, False),
        ({}, False),
    ],
)
def test_a_shared_secret_for_everybody_else(given: dict[str, Any], welcome: bool) -> None:
    said = {"headers": {}, **given}
    assert Trust(shared=("s3",)).believes(Asked("GET", [WSS], **said)) == welcome


def test_a_ticket_lets_in_the_stream_that_a_believed_webhook_announced() -> None:
    trust = Trust(twilio=TOKEN)
    ticket = trust.ticket()
    assert trust.believes(asked(ticket=ticket))
    until, _, seal = ticket.partition("-")
    for wrong in (f"{int(until) + 1}-{seal}", f"0-{seal}", until, "-", "x", Trust(twilio=TOKEN).ticket()):
        assert not trust.believes(asked(ticket=wrong))


def test_a_ticket_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    trust = Trust(shared=("s",))
    ticket, later = trust.ticket(), time.time() + 1000
    monkeypatch.setattr(time, "time", lambda: later)
    assert not trust.believes(asked(ticket=ticket))


def test_with_nothing_configured_everybody_may_call() -> None:
    assert Trust().believes(asked())
    assert Trust().audiosocket_id is None
    assert isinstance(Trust(shared=("s",)).audiosocket_id, uuid.UUID)
