"""Responses to incoming-call webhooks. Each tells a carrier, in its own format, where to stream the call; some also say
where to ask what to do when the stream has ended."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from urllib.parse import urlencode
from xml.sax.saxutils import escape, quoteattr

from server.telephony.plivo_headers import write_headers

_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'


def _parameter_elements(parameters: Mapping[str, str]) -> str:
    return "".join(f"<Parameter name={quoteattr(k)} value={quoteattr(v)}/>" for k, v in parameters.items())


def _redirect(url: str) -> str:
    return f'<Redirect method="POST">{escape(url)}</Redirect>' if url else ""


def _twilio(url: str, parameters: Mapping[str, str], then: str) -> str:
    """TwiML, which SignalWire also reads."""
    stream = f"<Stream url={quoteattr(url)}>{_parameter_elements(parameters)}</Stream>"
    return f"{_XML}<Response><Connect>{stream}</Connect>{_redirect(then)}</Response>"


def _telnyx(url: str, parameters: Mapping[str, str], then: str) -> str:
    """TeXML. RTP in both directions; by default, Telnyx expects MP3."""
    audio = 'track="inbound_track" codec="PCMU" bidirectionalMode="rtp" bidirectionalCodec="PCMU"'
    stream = f"<Stream url={quoteattr(url)} {audio}>{_parameter_elements(parameters)}</Stream>"
    return f"{_XML}<Response><Connect>{stream}</Connect>{_redirect(then)}</Response>"


def _plivo(url: str, parameters: Mapping[str, str], then: str) -> str:
    """Plivo XML."""
    headers = quoteattr(write_headers(parameters))
    options = f'bidirectional="true" keepCallAlive="true" contentType="audio/x-mulaw;rate=8000" extraHeaders={headers}'
    return f"{_XML}<Response><Stream {options}>{escape(url)}</Stream>{_redirect(then)}</Response>"


def _vonage(url: str, parameters: Mapping[str, str], then: str) -> str:
    """An NCCO. At 8 kHz: a phone call rarely has more bandwidth, and the server recognizes speech better when the
    declared rate is the real one (`voice.audio.telephone_band`)."""
    endpoint = {"type": "websocket", "uri": url, "content-type": "audio/l16;rate=8000", "headers": dict(parameters)}
    return json.dumps([{"action": "connect", "endpoint": [endpoint]}])


def _exotel(url: str, parameters: Mapping[str, str], then: str) -> str:
    """The stream URL for the Voicebot applet, which passes on the URL's query parameters."""
    return json.dumps({"url": f"{url}?{urlencode(parameters)}" if parameters else url})


HANG_UP = f"{_XML}<Response><Hangup/></Response>"
"""What ends a call of a carrier that follows redirects."""

FOLLOW_REDIRECTS = frozenset({"twilio.xml", "telnyx.xml", "plivo.xml"})
"""Documents in which a redirect may follow the stream."""

DOCUMENTS: dict[str, tuple[str, Callable[[str, Mapping[str, str], str], str]]] = {
    "twilio.xml": ("text/xml", _twilio),
    "telnyx.xml": ("text/xml", _telnyx),
    "plivo.xml": ("text/xml", _plivo),
    "vonage.json": ("application/json", _vonage),
    "exotel.json": ("application/json", _exotel),
}
"""By name: the media type, and a function that builds the document from a stream URL, the call's parameters, and a URL
to ask after the stream, empty for none."""
