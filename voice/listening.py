"""The sound that has been received and not been used up: cut by the audio clock, and tied to the wall clock."""

from __future__ import annotations

from collections import deque

import numpy as np

from voice.audio import HEARING_RATE, Samples

_ARRIVALS = 512
"""Blocks whose time of arrival is remembered: ten seconds of 20 ms blocks, the longest wait for an end of turn."""

_PER_MS = HEARING_RATE // 1000


class InputBuffer:
    """Sound at 16 kHz with its place on the audio clock (ms of audio received since the conversation began)."""

    def __init__(self) -> None:
        self._sound: Samples = np.zeros(0, np.float32)
        self._blocks: list[Samples] = []
        self._end = 0
        self._held = 0
        self._arrivals: deque[tuple[int, float]] = deque(maxlen=_ARRIVALS)

    @property
    def end_ms(self) -> int:
        """How much audio has been received in all."""
        return self._end // _PER_MS

    @property
    def start_ms(self) -> int:
        """Where the audio that is still held begins."""
        return (self._end - self._held) // _PER_MS

    @property
    def held_ms(self) -> int:
        """How much audio is held."""
        return self._held // _PER_MS

    def add(self, samples: Samples, arrival: float) -> None:
        """Take a block that arrived at `arrival` seconds on the session's clock."""
        self._blocks.append(samples)
        self._end += len(samples)
        self._held += len(samples)
        self._arrivals.append((self._end, arrival))

    def since(self, at_ms: int) -> Samples:
        """The audio held from `at_ms` on."""
        wanted = max(0, self._end - at_ms * _PER_MS)
        return self._joined()[max(0, self._held - wanted) :].copy()

    def last(self, length_ms: int) -> Samples:
        """The newest `length_ms` of it, or less where less is held."""
        return self.since(self._end // _PER_MS - length_ms)

    def keep_last(self, length_ms: int) -> None:
        """Forget all but the last `length_ms`. Cheap to call often: nothing is moved until twice that is held."""
        if self.held_ms > 2 * length_ms:
            self._sound = self._joined()[-length_ms * _PER_MS :].copy()
            self._held = len(self._sound)

    def forget_before(self, at_ms: int) -> None:
        """Forget what came before `at_ms`."""
        self._sound, self._blocks = self.since(at_ms), []
        self._held = len(self._sound)

    def clear(self) -> None:
        """Forget everything; the audio clock goes on."""
        self._sound, self._blocks, self._held = np.zeros(0, np.float32), [], 0

    def time_of(self, at_ms: int) -> float:
        """When the sample at `at_ms` was spoken: the arrival of its block, less what came behind it in the block."""
        place = at_ms * _PER_MS
        for end, arrival in self._arrivals:
            if end >= place:
                return arrival - (end - place) / HEARING_RATE
        return self._arrivals[-1][1] if self._arrivals else 0.0

    def _joined(self) -> Samples:
        if self._blocks:
            self._sound = np.concatenate((self._sound, *self._blocks))
            self._blocks = []
        return self._sound
