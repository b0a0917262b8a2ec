"""What carriers are answered when a call comes in: where to stream it to, in each one's own language."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from urllib.parse import urlencode
from xml.sax.saxutils import escape, quoteattr

_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'


def _parameters(given: Mapping[str, str]) -> str:
    return "".join(f"<Parameter name={quoteattr(k)} value={quoteattr(v)}/>" for k, v in given.items())


def _twilio(url: str, given: Mapping[str, str]) -> str:
    """TwiML, which SignalWire reads too."""
    stream = f"<Stream url={quoteattr(url)}>{_parameters(given)}</Stream>"
    return f"{_XML}<Response><Connect>{stream}</Connect></Response>"


def _telnyx(url: str, given: Mapping[str, str]) -> str:
    """TeXML. RTP both ways; without it Telnyx wants MP3."""
    form = 'track="inbound_track" codec="PCMU" bidirectionalMode="rtp" bidirectionalCodec="PCMU"'
    stream = f"<Stream url={quoteattr(url)} {form}>{_parameters(given)}</Stream>"
    return f"{_XML}<Response><Connect>{stream}</Connect></Response>"


def _plivo(url: str, given: Mapping[str, str]) -> str:
    """Plivo XML; its extra headers may hold letters and digits only, so what holds more is left out."""
    plain = {k: v for k, v in given.items() if v.replace(".", "").isalnum() and v.isascii() and len(v) < 100}
    headers = quoteattr(",".join(f"{k}={v}" for k, v in plain.items()))
    form = f'bidirectional="true" keepCallAlive="true" contentType="audio/x-mulaw;rate=8000" extraHeaders={headers}'
    return f"{_XML}<Response><Stream {form}>{escape(url)}</Stream></Response>"


def _vonage(url: str, given: Mapping[str, str]) -> str:
    """An NCCO. At 8 kHz: a telephone rarely has more, and sound that says so is heard better (`voice.lowband`)."""
    end = {"type": "websocket", "uri": url, "content-type": "audio/l16;rate=8000", "headers": dict(given)}
    return json.dumps([{"action": "connect", "endpoint": [end]}])


def _exotel(url: str, given: Mapping[str, str]) -> str:
    """The Voicebot applet's address; it passes on parameters of the address itself."""
    return json.dumps({"url": f"{url}?{urlencode(given)}" if given else url})


DOCUMENTS: dict[str, tuple[str, Callable[[str, Mapping[str, str]], str]]] = {
    "twilio.xml": ("text/xml", _twilio),
    "telnyx.xml": ("text/xml", _telnyx),
    "plivo.xml": ("text/xml", _plivo),
    "vonage.json": ("application/json", _vonage),
    "exotel.json": ("application/json", _exotel),
}
"""By name: media type, and the document for a stream's address and a call's parameters."""
