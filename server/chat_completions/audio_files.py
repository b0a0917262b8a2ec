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
        container, codec: names in FFmpeg.
    """

    media_type: str
    container: str
    codec: str


SPEECH_FORMATS: dict[SpeechFormat, _Format] = {
    "mp3": _Format("audio/mpeg", "mp3", "mp3"),
    "opus": _Format("audio/ogg", "ogg", "libopus"),
    "aac": _Format("audio/aac", "adts", "aac"),
    "flac": _Format("audio/flac", "flac", "flac"),
    "wav": _Format("audio/wav", "wav", "pcm_s16le"),
    "pcm": _Format("audio/pcm", "s16le", "pcm_s16le"),
}
"""The formats of `/v1/audio/speech`. `pcm` is 16-bit little-endian mono at 24 kHz, without a header."""

_OPTIONS = {"fflags": "+bitexact"}
"""For WAV: its header is only the format, and a length that says that the stream is not complete yet."""


class SpeechEncoder:
    """Encodes speech in a format of `SPEECH_FORMATS` as it is synthesized."""

    def __init__(self, name: SpeechFormat) -> None:
        written, self._file, self._read = SPEECH_FORMATS[name], BytesIO(), 0
        self._container = av.open(self._file, "w", format=written.container, options=_OPTIONS if name == "wav" else {})
        self._stream: Any = self._container.add_stream(written.codec, rate=OUTPUT_RATE, layout="mono")
        self._container.start_encoding()

    def push(self, samples: Samples) -> bytes:
        """Add samples at 24 kHz; returns the bytes that are complete."""
        if len(samples):
            frame = av.AudioFrame.from_ndarray(np.frombuffer(to_pcm16(samples), "<i2")[None], "s16", "mono")
            frame.sample_rate = OUTPUT_RATE
            self._container.mux(self._stream.encode(frame))
        return self._take()

    def finish(self) -> bytes:
        """The rest of the file."""
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._take()

    def _take(self) -> bytes:
        data = self._file.getvalue()[self._read :]
        self._read += len(data)
        return data
