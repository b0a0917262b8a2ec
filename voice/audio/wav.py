"""WAV files: read to and write from mono float32 samples."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np

from voice.audio.codec import RECOGNITION_RATE, BadAudio, Samples, from_pcm16, to_pcm16
from voice.audio.resampling import resample

_RATES = range(4_000, 192_001)
"""Sample rates in Hz that a WAV file may have."""


def read_wav(path: Path, rate: int = RECOGNITION_RATE) -> Samples:
    """Read a WAV file at `rate` Hz. Channels are mixed to mono.

    Raises:
        BadAudio: the file is missing, not 16-bit PCM WAV, or empty.
    """
    try:
        with wave.open(str(path)) as file:
            width, channels, file_rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            data = file.readframes(file.getnframes())
    except FileNotFoundError:
        raise BadAudio(f"there is no file {path}") from None
    except (wave.Error, EOFError) as error:
        raise BadAudio(
            f"{path} is not a PCM WAV file ({error}): convert it with `ffmpeg -i {path} -c:a pcm_s16le out.wav`"
        ) from None
    if width != 2:
        raise BadAudio(f"{path} has {8 * width}-bit samples: convert it to 16 bits")
    if file_rate not in _RATES:
        raise BadAudio(
            f"{path} has a sample rate of {file_rate} Hz: it must be between {_RATES[0]} and {_RATES[-1]} Hz"
        )
    samples = from_pcm16(data[: len(data) // (2 * channels) * 2 * channels]).reshape(-1, channels).mean(axis=1)
    if not len(samples):
        raise BadAudio(f"{path} contains no audio")
    return resample(samples.astype(np.float32), file_rate, rate)


def write_wav(path: Path, samples: Samples, rate: int) -> None:
    """Write mono 16-bit PCM."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(to_pcm16(samples))
