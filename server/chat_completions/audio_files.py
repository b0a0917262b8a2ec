"""Writes speech in common formats, with PyAV, which faster-whisper brings. `decoder.py` reads recordings."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import Any, Literal

import av
import numpy as np

from voice.audio.codec import OUTPUT_RATE, Samples, to_pcm16

SpeechFormat = Literal["mp3", "opus", "aac", "flac", "wav", "pcm"]


@dataclass(frozen=True)
class _Format:
    """How a format is written.

    Attributes:
        container, codec: names in FFmpeg; empty where no encoder is needed.
        rate: Hz.
    """

    media_type: str
    container: str = ""
    codec: str = ""
    rate: int = OUTPUT_RATE


SPEECH_FORMATS: dict[SpeechFormat, _Format] = {
    "mp3": _Format("audio/mpeg", "mp3", "mp3"),
    "opus": _Format("audio/ogg", "ogg", "libopus"),
    "aac": _Format("audio/aac", "adts", "aac"),
    "flac": _Format("audio/flac", "flac", "flac"),
    "wav": _Format("audio/wav"),
    "pcm": _Format("audio/pcm"),
}
"""The formats of `/v1/audio/speech`. `pcm` is 16-bit little-endian mono at 24 kHz, without a header."""

_UNKNOWN_LENGTH = 0xFFFFFFFF
"""In a WAV header: the stream is not complete yet."""


class SpeechEncoder:
    """Encodes speech as it is synthesized.

    Args:
        name: the format.
        file: where the encoder writes; it must be empty.
    """

    def __init__(self, name: SpeechFormat, file: BytesIO) -> None:
        self._format, self._file, self._read = SPEECH_FORMATS[name], file, 0
        if self._format.codec:
            self._container = av.open(file, "w", format=self._format.container)
            self._stream: Any = self._container.add_stream(self._format.codec, rate=self._format.rate, layout="mono")
        elif name == "wav":
            file.write(_wav_header())

    def push(self, samples: Samples) -> bytes:
        """Add samples at 24 kHz; returns the bytes that are complete."""
        if not self._format.codec:
            self._file.write(to_pcm16(samples))
        elif len(samples):
            frame = av.AudioFrame.from_ndarray(np.frombuffer(to_pcm16(samples), "<i2")[None], "s16", "mono")
            frame.sample_rate = OUTPUT_RATE
            self._container.mux(self._stream.encode(frame))
        return self._take()

    def finish(self) -> bytes:
        """The rest of the file."""
        if self._format.codec:
            self._container.mux(self._stream.encode(None))
            self._container.close()
        return self._take()

    def _take(self) -> bytes:
        data = self._file.getvalue()[self._read :]
        self._read += len(data)
        return data


def _wav_header() -> bytes:
    """The header of a stream of unknown length."""
    rate = OUTPUT_RATE.to_bytes(4, "little")
    bytes_per_second = (2 * OUTPUT_RATE).to_bytes(4, "little")
    unknown = _UNKNOWN_LENGTH.to_bytes(4, "little")
    return (
        b"RIFF" + unknown + b"WAVEfmt " + (16).to_bytes(4, "little") + b"\x01\x00\x01\x00" + rate + bytes_per_second
        + b"\x02\x00\x10\x00" + b"data" + unknown
    )  # fmt: skip
