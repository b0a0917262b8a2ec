"""Authentication of carriers: signatures (checked against the carriers' own libraries), shared secrets and tickets."""

from __future__ import annotations

import base64
import time
import uuid
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from server.telephony.auth import CarrierAuth, CarrierRequest, candidate_urls

TOKEN = "0123456789abcdef0123456789abcdef"
NEEDS_TEST = 'the carriers\' packages are not installed: pip install -e ".[test]"'
WSS = "wss://phone.example.org/phone"


def request(url: str = WSS, method: str = "GET", **fields: Any) -> CarrierRequest:
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    path, _, query = path.partition("?")
    headers = {name.lower(): value for name, value in fields.pop("headers", {}).items()}
    pairs = dict(pair.split("=") for pair in query.split("&") if pair)
    # As it arrives after a proxy that terminates TLS.
    urls = candidate_urls("ws" if scheme == "wss" else "http", host, f"/{path}", query)
    return CarrierRequest(method, urls, headers, pairs, **fields)


@pytest.mark.parametrize("host", ["[", "[::1", "a/b", "a@b]", "\u2100"])
def test_a_host_that_no_url_can_have_is_not_signed(host: str) -> None:
    """The header is whatever somebody sends."""
    urls = candidate_urls("http", host, "/phone/plivo.xml", "", "https://phone.example.org")
    assert {urlsplit(url).hostname for url in urls} == {"phone.example.org"}
    headers = {"x-plivo-signature-v3": "x", "x-plivo-signature-v3-nonce": "1"}
    assert not CarrierAuth(plivo_token=TOKEN).accepts(CarrierRequest("POST", urls, headers, {}))


@pytest.mark.parametrize("url", [WSS, "wss://phone.example.org:8443/phone", "wss://phone.example.org:443/phone"])
def test_twilios_signature_of_an_upgrade(url: str) -> None:
    validator = pytest.importorskip("twilio.request_validator", reason=NEEDS_TEST).RequestValidator(TOKEN)
    signature = validator.compute_signature(url, {})
    assert validator.validate(url, {}, signature)
    auth = CarrierAuth(twilio_token=TOKEN)
    assert auth.accepts(request(url, headers={"X-Twilio-Signature": signature}))
    for wrong in (signature[:-2] + "x=", "", "é"):
        assert not auth.accepts(request(url, headers={"X-Twilio-Signature": wrong}))
    assert not auth.accepts(request("wss://phone.example.org/elsewhere", headers={"X-Twilio-Signature": signature}))
    other_account = CarrierAuth(twilio_token="another")
    assert not other_account.accepts(request(url, headers={"X-Twilio-Signature": signature}))
    assert not auth.accepts(request(url))


def test_twilios_signature_of_a_webhook() -> None:
    validator = pytest.importorskip("twilio.request_validator", reason=NEEDS_TEST).RequestValidator(TOKEN)
    url, form = (
        "https://phone.example.org/phone/twilio.xml?greeting=Hi",
        {"From": "+1555", "CallSid": "CA1", "To": "+1"},
    )
    headers = {"X-Twilio-Signature": validator.compute_signature(url, form)}
    auth = CarrierAuth(twilio_token=TOKEN)
    assert auth.accepts(request(url, "POST", headers=headers, form=form))
    assert not auth.accepts(request(url, "POST", headers=headers, form={**form, "From": "+1666"}))


def test_a_signature_is_valid_when_a_proxy_hides_the_host() -> None:
    validator = pytest.importorskip("twilio.request_validator", reason=NEEDS_TEST).RequestValidator(TOKEN)
    urls = candidate_urls("ws", "127.0.0.1:8000", "/phone", "", "https://phone.example.org")
    headers = {"x-twilio-signature": validator.compute_signature(WSS, {})}
    assert CarrierAuth(twilio_token=TOKEN).accepts(CarrierRequest("GET", urls, headers))


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
    plivo = pytest.importorskip("plivo.utils.signature_v3", reason=NEEDS_TEST)
    if method == "GET":
        base = plivo.construct_get_url(url, dict(form)).decode()
    else:
        base = plivo.construct_post_url(url, dict(form)).decode()
    signature = plivo.get_signature_v3(TOKEN.encode(), base.encode(), b"nonce").decode()
    headers = {"X-Plivo-Signature-V3": f"older,{signature}", "X-Plivo-Signature-V3-Nonce": "nonce"}
    auth = CarrierAuth(plivo_token=TOKEN)
    assert auth.accepts(request(url, method, headers=headers, form=form))
    assert not auth.accepts(request(url, method, headers={**headers, "X-Plivo-Signature-V3-Nonce": "n"}))
    assert not CarrierAuth(plivo_token="another").accepts(request(url, method, headers=headers, form=form))


def sign_like_telnyx(body: bytes, timestamp: int) -> tuple[str, dict[str, str]]:
    key = Ed25519PrivateKey.generate()
    signature = key.sign(f"{timestamp}|".encode() + body)
    headers = {"telnyx-timestamp": str(timestamp), "telnyx-signature-ed25519": base64.b64encode(signature).decode()}
    return base64.b64encode(key.public_key().public_bytes_raw()).decode(), headers


def test_telnyxs_signature_of_a_webhook() -> None:
    body = b"From=%2B1555&CallSid=v3"
    public_key, headers = sign_like_telnyx(body, int(time.time()))
    auth, url = CarrierAuth(telnyx_public_key=public_key), "https://phone.example.org/phone/telnyx.xml"
    assert auth.accepts(request(url, "POST", headers=headers, body=body))
    assert not auth.accepts(request(url, "POST", headers=headers, body=body + b"&x=1"))
    assert not auth.accepts(request(url, "POST", headers={}, body=body))
    for digits in (400, 5000):
        too_long = {**headers, "telnyx-timestamp": "9" * digits}
        assert not auth.accepts(request(url, "POST", headers=too_long, body=body))
    old_key, old_headers = sign_like_telnyx(body, int(time.time()) - 1000)
    assert not CarrierAuth(telnyx_public_key=old_key).accepts(request(url, "POST", headers=old_headers, body=body))


def test_an_invalid_telnyx_key_is_reported_at_startup() -> None:
    with pytest.raises(ValueError, match="32 bytes in base64"):
        CarrierAuth(telnyx_public_key="not a key")


@pytest.mark.parametrize(
    ("fields", "accepted"),
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
def test_a_shared_secret_is_accepted_in_every_place_where_clients_can_put_it(
    fields: dict[str, Any], accepted: bool
) -> None:
    fields = {"headers": {}, **fields}
    assert CarrierAuth(shared_secrets=("s3",)).accepts(CarrierRequest("GET", [WSS], **fields)) == accepted


def test_a_ticket_authorizes_the_stream_that_an_accepted_webhook_announced() -> None:
    auth = CarrierAuth(twilio_token=TOKEN)
    text = auth.issue_ticket("+15550100", "pbx")
    ticket = auth.read_ticket(text)
    assert ticket is not None and (ticket.caller, ticket.key) == ("+15550100", "pbx")
    assert "15550100" not in base64.urlsafe_b64decode(text + "==").decode("latin-1")  # proxies log URLs
    other = CarrierAuth(twilio_token=TOKEN).issue_ticket()
    changed = text[:60] + ("A" if text[60] != "A" else "B") + text[61:]
    for wrong in (changed, text[:-4], "-", "", "x", "é", other):
        assert auth.read_ticket(wrong) is None


def test_a_ticket_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    auth = CarrierAuth(shared_secrets=("s",))
    ticket, later = auth.issue_ticket(), time.time() + 1000
    monkeypatch.setattr(time, "time", lambda: later)
    assert auth.read_ticket(ticket) is None


def test_without_credentials_no_carrier_can_show_who_it_is() -> None:
    assert not CarrierAuth().accepts(request())
    assert CarrierAuth().audiosocket_uuid is None
    assert isinstance(CarrierAuth(shared_secrets=("s",)).audiosocket_uuid, uuid.UUID)
