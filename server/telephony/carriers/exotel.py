"""Exotel's Voicebot applet: Twilio's messages under other names, with linear audio in large chunks.

Source: developer.exotel.com/docs/agentstream/stream-voicebot-applet.
"""

from __future__ import annotations

from typing import Any

from server.telephony.carriers.json_stream import JSONStreamDialect, media_format
from server.telephony.dialect import (
    BadMessage,
    CallerAudio,
    CallStarted,
    CarrierEvent,
    parse_media,
    parse_parameters,
)
from voice.audio.codec import Encoding

_LINEAR: dict[str, Encoding] = {"raw/slin": "pcm", "base64": "pcm", "audio/x-l16": "pcm", "audio/l16": "pcm"}
"""The applet's names for its only encoding; its start messages actually contain `base64`."""


class Exotel(JSONStreamDialect):
    """16-bit linear at 8, 16 or 24 kHz in JSON. Chunks below 3,200 bytes, 200 ms at 8 kHz, may sound broken, so at
    least two chunks are sent ahead."""

    name = "exotel"
    stream_key = "stream_sid"
    send_ahead_ms = 600
    chunk_ms = 200

    def __init__(self) -> None:
        super().__init__()
        self.encoding = "pcm"

    def _parse_audio(self, media: dict[str, Any]) -> CallerAudio | None:
        audio = parse_media(media)
        if len(audio.data) % 2:
            raise BadMessage(f"{len(audio.data)} bytes of audio, which are not 16-bit samples")
        return audio

    def _parse_playback(self, message: dict[str, Any]) -> CarrierEvent | None:
        return None if message.get("event") == "clear" else super()._parse_playback(message)

    def _parse_start(self, message: dict[str, Any], start: dict[str, Any]) -> CallStarted:
        audio = media_format(start, "media_format")
        encoding = str(audio.get("encoding", "raw/slin")).lower()
        self._set_audio_format(encoding, audio.get("sample_rate") or 8000, _LINEAR, (8000, 16000, 24000))
        self._stream_id = str(start.get("stream_sid", ""))
        parameters = parse_parameters(start.get("custom_parameters"))
        return CallStarted(
            str(start.get("call_sid", "")), str(start.get("from", "")), str(start.get("to", "")), parameters
        )
