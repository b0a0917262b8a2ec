"""Brings a dialect to the start of a call, from a simulated carrier's first frames."""

from __future__ import annotations

from lab.simulator.carriers import Carrier
from server.telephony.carriers.audiosocket import AudioSocket
from server.telephony.carriers.detection import detect_carrier
from server.telephony.dialect import CallStarted, Dialect


def start_dialect(carrier: Carrier) -> tuple[Dialect, CallStarted]:
    """The dialect detected from a carrier's first frames, and its start event."""
    dialect: Dialect | None = AudioSocket() if carrier.name == "audiosocket" else None
    frames = [*carrier.opening_frames(), *([carrier.audio(bytes(320))] if carrier.name == "audiosocket" else [])]
    for frame in frames:
        dialect = dialect or detect_carrier(frame)
        if dialect is not None and isinstance(event := dialect.parse(frame), CallStarted):
            return dialect, event
    raise AssertionError("no start event")
