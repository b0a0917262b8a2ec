"""Asterisk's AudioSocket: one call on a TCP connection, in frames of type, length and payload.

Source: docs.asterisk.org/Configuration/Channel-Drivers/AudioSocket. Asterisk plays audio as soon as it arrives, so
little is sent ahead, and audio that was sent cannot be cleared.
"""

from __future__ import annotations

import uuid

from server.telephony.dialect import (
    BadCall,
    BadMessage,
    CallEnded,
    CallStarted,
    CarrierEvent,
    Dialect,
    Frame,
    parse_dtmf,
)

HEADER_BYTES = 3
"""Bytes before a payload: its type in one byte, its length in two, big-endian."""

_HANG_UP = 0x00

_RATES = {
    0x10: 8_000, 0x11: 12_000, 0x12: 16_000, 0x13: 24_000, 0x14: 32_000, 0x15: 44_100, 0x16: 48_000, 0x17: 96_000,
    0x18: 192_000,
}  # fmt: skip
"""Hz of each type of 16-bit linear audio; Asterisk before 22 has only the first."""

_SUPPORTED_RATES = (8_000, 16_000, 24_000)


class AudioSocket(Dialect):
    """16-bit linear audio, 8 kHz unless Asterisk's channel has more. A frame includes its header.

    Attributes:
        call_id: the UUID from the dialplan, empty until it arrives. The call starts with its first audio frame, whose
            type gives the sample rate.
    """

    name = "audiosocket"
    send_ahead_ms = 60
    returns_marks = False
    has_text_frames = False

    def __init__(self) -> None:
        super().__init__()
        self.call_id = ""
        self._audio_type: int | None = None

    def parse(self, frame: Frame) -> CarrierEvent | None:
        if isinstance(frame, str) or len(frame) < HEADER_BYTES:
            raise BadCall("an AudioSocket frame must have a type and a length", 1007)
        frame_type, payload = frame[0], frame[HEADER_BYTES:]
        match frame_type:
            case 0x00:
                return CallEnded("the caller hung up")
            case 0x01 if len(payload) == 16:
                self.call_id = str(uuid.UUID(bytes=payload))
                return None
            case 0x01:
                raise BadCall(f"an AudioSocket call's UUID must have 16 bytes, not {len(payload)}", 1007)
            case 0x03:
                return parse_dtmf({"digit": payload.decode("ascii", "replace")})
            case 0xFF:
                raise BadCall(f"Asterisk reports the error {payload[:8].hex()}", 1011)
            case _ if frame_type in _RATES:
                return self._parse_audio(frame_type, payload)
            case _:
                raise BadMessage(f"an unknown AudioSocket frame of type 0x{frame_type:02x}")

    def _parse_audio(self, frame_type: int, payload: bytes) -> CarrierEvent:
        if self._audio_type is None:
            if not self.call_id:
                raise BadCall("audio came before the call's UUID", 1008)
            encoding = f"0x{frame_type:02x}"
            self._begin(encoding, _RATES[frame_type], {encoding: "pcm"}, _SUPPORTED_RATES)
            self._audio_type = frame_type
            return CallStarted(self.call_id)
        if frame_type != self._audio_type:
            raise BadMessage("audio whose sample rate has changed")
        return self._caller_audio(payload)

    def audio(self, data: bytes) -> Frame:
        return _build_frame(self._audio_type or 0x10, data)

    def hang_up(self) -> Frame:
        return _build_frame(_HANG_UP, b"")


def _build_frame(frame_type: int, payload: bytes) -> bytes:
    """A frame. Raises OverflowError for more than 65,535 bytes."""
    return bytes([frame_type]) + len(payload).to_bytes(2, "big") + payload
