"""Asterisk's AudioSocket: one call on a TCP connection, in frames of type, length and payload.

Source: docs.asterisk.org/Configuration/Channel-Drivers/AudioSocket. Asterisk plays what comes when it comes, so little
is sent ahead, and nothing can be taken back.
"""

from __future__ import annotations

import uuid

from server.phone.wire import BadCall, BadMessage, Dialect, Digit, Frame, Heard, Sound, Started, Stopped, digit_of

HEADER = 3
"""Bytes in front of a payload: its type, and its length in two of them, the higher first."""

_HANG_UP = 0x00

_RATES = {
    0x10: 8_000, 0x11: 12_000, 0x12: 16_000, 0x13: 24_000, 0x14: 32_000, 0x15: 44_100, 0x16: 48_000, 0x17: 96_000,
    0x18: 192_000,
}  # fmt: skip
"""Hz of each type of 16-bit linear sound; Asterisk before 22 has the first only."""

_UNDERSTOOD = (8_000, 16_000, 24_000)


class AudioSocket(Dialect):
    """16-bit linear, 8 kHz unless Asterisk's channel has more. A frame is a whole one with its header.

    Attributes:
        call_id: the UUID from the dialplan, empty until it came. The call starts with its first sound, which tells the
            rate.
    """

    name = "audiosocket"
    ahead_ms = 60
    marks = False

    def __init__(self) -> None:
        super().__init__()
        self.encoding = "pcm"
        self.call_id = ""
        self._kind: int | None = None

    def take(self, frame: Frame) -> Heard | None:
        """See `Dialect.take`."""
        if isinstance(frame, str) or len(frame) < HEADER:
            raise BadCall("an AudioSocket frame has a type and a length", 1007)
        kind, payload = frame[0], frame[HEADER:]
        match kind:
            case 0x00:
                return Stopped("the caller hung up")
            case 0x01 if len(payload) == 16:
                self.call_id = str(uuid.UUID(bytes=payload))
                return None
            case 0x01:
                raise BadCall(f"an AudioSocket call is named by 16 bytes, not by {len(payload)}", 1007)
            case 0x03:
                return self._digit(payload)
            case 0xFF:
                raise BadCall(f"Asterisk reports the error {payload[:8].hex()}", 1011)
            case _ if kind in _RATES:
                return self._hear(kind, payload)
            case _:
                raise BadMessage(f"an unknown AudioSocket frame of type 0x{kind:02x}")

    def _digit(self, payload: bytes) -> Digit:
        return digit_of({"digit": payload.decode("ascii", "replace")})

    def _hear(self, kind: int, payload: bytes) -> Heard:
        if self._kind is None:
            if not self.call_id:
                raise BadCall("sound came before the call's UUID", 1008)
            self._sound_is(f"0x{kind:02x}", _RATES[kind], {f"0x{kind:02x}": "pcm"}, _UNDERSTOOD)
            self._kind = kind
            return Started(self.call_id)
        if kind != self._kind:
            raise BadMessage("sound at another rate than before")
        if len(payload) % 2:
            raise BadMessage(f"{len(payload)} bytes of sound, which are not 16-bit samples")
        return Sound(payload)

    def sound(self, data: bytes) -> Frame:
        """See `Dialect.sound`."""
        return framed(self._kind or 0x10, data)

    def hang_up(self) -> Frame:
        """See `Dialect.hang_up`."""
        return framed(_HANG_UP, b"")


def framed(kind: int, payload: bytes) -> bytes:
    """A frame. Raises OverflowError for more than 65,535 bytes."""
    return bytes([kind]) + len(payload).to_bytes(2, "big") + payload
