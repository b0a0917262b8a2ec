"""Recordings that take a server much more than their size."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import av
import numpy as np

_BLOCK = 65_535
"""Samples of a FLAC frame, at most."""


def silent_flac(seconds: float, rate: int = 8_000, channels: int = 1) -> bytes:
    """Digital silence: 13 bytes for each 65,535 samples, and two more for each further channel."""
    info = (
        (_BLOCK << 16 | _BLOCK).to_bytes(4, "big")
        + bytes(6)
        + (rate << 44 | channels - 1 << 41 | 15 << 36).to_bytes(8, "big")
        + bytes(16)
    )
    rate_code = {8_000: 0b0100, 192_000: 0b0011}[rate]
    frames = []
    for number in range(int(seconds * rate / _BLOCK) + 1):
        header = bytes((0xFF, 0xF8, 0b0111 << 4 | rate_code, channels - 1 << 4 | 0b100 << 1))
        header += chr(number).encode("utf-8", "surrogatepass") + (_BLOCK - 1).to_bytes(2, "big")
        frame = header + bytes((_crc(header, 0x07, 8),)) + bytes(3 * channels)
        frames.append(frame + _crc(frame, 0x8005, 16).to_bytes(2, "big"))
    return b"fLaC\x80\x00\x00\x22" + info + b"".join(frames)


@cache
def slow_flac() -> bytes:
    """140 kB that take most of a minute to decode: 22 minutes of eight channels at 192 kHz."""
    return silent_flac(1_300, 192_000, 8)


def _crc(data: bytes, polynomial: int, bits: int) -> int:
    value, top = 0, 1 << bits - 1
    for byte in data:
        value ^= byte << bits - 8
        for _ in range(8):
            value = (value << 1 ^ polynomial if value & top else value << 1) & (1 << bits) - 1
    return value


def encoded(container: str, codec: str, seconds: float = 1.0, video: str = "") -> bytes:
    """Noise in a container, with a black video if `video` names a codec."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as output:
        sound: Any = output.add_stream(codec, rate=48_000, layout="mono")
        picture: Any = output.add_stream(video, rate=25) if video else None
        if picture:
            picture.width, picture.height, picture.pix_fmt = 64, 64, "yuv420p"
        noise = np.random.default_rng(0).integers(-9_000, 9_000, int(48_000 * seconds)).astype("<i2")
        frame = av.AudioFrame.from_ndarray(noise[None], "s16", "mono")
        frame.sample_rate = 48_000
        output.mux(sound.encode(frame))
        output.mux(sound.encode(None))
        for n in range(int(25 * seconds) if picture else 0):
            black = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), "rgb24")
            black.pts = n
            output.mux(picture.encode(black))
        if picture:
            output.mux(picture.encode(None))
    return file.getvalue()


def overcounting_m4a(samples: int = 50_000_000) -> bytes:
    """A second of sound whose tables say that it has many more samples; FFmpeg keeps 24 bytes for each."""
    data = bytearray(encoded("mp4", "aac"))
    sizes = data.index(b"stsz")
    data[sizes + 8 : sizes + 16] = (1).to_bytes(4, "big") + samples.to_bytes(4, "big")  # all of one size
    chunks = data.index(b"stsc")
    data[chunks + 16 : chunks + 20] = samples.to_bytes(4, "big")  # samples of the first chunk
    return bytes(data)
