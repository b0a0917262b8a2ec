"""Received audio that has not been consumed yet, addressed by the audio clock and tied to the wall clock."""

from __future__ import annotations

from collections import deque

import numpy as np

from voice.audio.codec import RECOGNITION_RATE, Samples

_MAX_ARRIVALS = 512
"""Blocks whose arrival time is remembered: ten seconds of 20 ms blocks, the longest wait for the end of a turn."""

_SAMPLES_PER_MS = RECOGNITION_RATE // 1000


class InputBuffer:
    """Audio at 16 kHz with its position on the audio clock (ms of audio received since the conversation began)."""

    def __init__(self) -> None:
        self._samples: Samples = np.zeros(0, np.float32)
        self._blocks: list[Samples] = []
        self._end = 0
        self._buffered = 0
        self._arrivals: deque[tuple[int, float]] = deque(maxlen=_MAX_ARRIVALS)

    @property
    def end_ms(self) -> int:
        """Total audio received, in ms."""
        return self._end // _SAMPLES_PER_MS

    @property
    def start_ms(self) -> int:
        """Where the buffered audio begins."""
        return (self._end - self._buffered) // _SAMPLES_PER_MS

    @property
    def buffered_ms(self) -> int:
        """Length of the buffered audio."""
        return self._buffered // _SAMPLES_PER_MS

    def add(self, samples: Samples, arrival: float) -> None:
        """Append a block that arrived at `arrival` seconds on the session's clock."""
        self._blocks.append(samples)
        self._end += len(samples)
        self._buffered += len(samples)
        self._arrivals.append((self._end, arrival))

    def since(self, start_ms: int) -> Samples:
        """The buffered audio from `start_ms` on."""
        count = max(0, self._end - start_ms * _SAMPLES_PER_MS)
        return self._joined()[max(0, self._buffered - count) :].copy()

    def last(self, length_ms: int) -> Samples:
        """The newest `length_ms`, or less if less is buffered."""
        return self.since(self._end // _SAMPLES_PER_MS - length_ms)

    def keep_last(self, length_ms: int) -> None:
        """Discard all but the last `length_ms`. Cheap to call often: nothing moves until twice that is buffered."""
        if self.buffered_ms > 2 * length_ms:
            self._samples = self._joined()[-length_ms * _SAMPLES_PER_MS :].copy()
            self._buffered = len(self._samples)

    def discard_before(self, start_ms: int) -> None:
        """Discard the audio before `start_ms`."""
        self._samples, self._blocks = self.since(start_ms), []
        self._buffered = len(self._samples)

    def clear(self) -> None:
        """Discard all audio. The audio clock continues."""
        self._samples, self._blocks, self._buffered = np.zeros(0, np.float32), [], 0

    def time_of(self, position_ms: int) -> float:
        """When the sample at `position_ms` was recorded: the arrival of its block minus what follows it there."""
        position = position_ms * _SAMPLES_PER_MS
        for end, arrival in self._arrivals:
            if end >= position:
                return arrival - (end - position) / RECOGNITION_RATE
        return self._arrivals[-1][1] if self._arrivals else 0.0

    def _joined(self) -> Samples:
        if self._blocks:
            self._samples = np.concatenate((self._samples, *self._blocks))
            self._blocks = []
        return self._samples
