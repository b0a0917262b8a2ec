"""Recordings in any format that FFmpeg reads. Those of clients are decoded in a process of their own, by the server."""

from __future__ import annotations

from typing import IO

import av
import numpy as np

from voice.audio.codec import Samples


def read_compressed(source: str | IO[bytes], rate: int) -> Samples:
    """A recording, mixed to mono: [T] float32 at `rate` Hz.

    Args:
        source: a file, or its path.

    Raises:
        FileNotFoundError, av.error.FFmpegError: it cannot be read.
        IndexError: it has no sound.
    """
    resampler = av.AudioResampler("flt", "mono", rate)
    with av.open(source, "r") as container:
        frames = [*container.decode(audio=0), None]  # None: what the resampler still holds
        parts = [part.to_ndarray()[0] for frame in frames for part in resampler.resample(frame)]
    return np.concatenate([np.zeros(0, np.float32), *parts])
