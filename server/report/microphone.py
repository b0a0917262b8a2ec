"""A microphone that never closes: blocks of 20 ms on an absolute schedule, silence where nothing is said.

A sample's moment is where it lies on the schedule; its block is sent when the block's last sample has been spoken, as
a sound card does it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import numpy as np

from voice.audio import SPEAKING_RATE, Samples, resample

BLOCK_S = 0.02


class Microphone:
    """Streams until it is cancelled.

    Args:
        send: takes one block, [T] float32 at `rate`.
        rate: Hz of what is sent; what is said is at 24 kHz.

    Attributes:
        worst_late_s: how far behind the schedule the latest block of all was sent, since it was last set to 0.
    """

    def __init__(self, send: Callable[[Samples], Awaitable[None]], rate: int = SPEAKING_RATE) -> None:
        self._send, self._rate = send, rate
        self._block = round(BLOCK_S * rate)
        self._began = time.monotonic()
        self._sent = 0
        self._queue: list[tuple[int, Samples]] = []
        self._background: Samples | None = None
        self._background_at = 0
        self.worst_late_s = 0.0

    def say(self, samples: Samples, at: float | None = None) -> float:
        """Speak from the next block on, or from `at`; overlapping sounds are mixed.

        Returns:
            The moment of the first sample, on `time.monotonic`.
        """
        first = self._sent * self._block
        if at is not None:
            first = max(first, round((at - self._began) * self._rate))
        self._queue.append((first, resample(samples, SPEAKING_RATE, self._rate)))
        return self._began + first / self._rate

    def surround(self, background: Samples | None) -> None:
        """Mix a loop into everything from now on; None ends it."""
        self._background = None if background is None else resample(background, SPEAKING_RATE, self._rate)
        self._background_at = self._sent * self._block

    async def run(self) -> None:
        """Send block after block."""
        self._began = time.monotonic() - self._sent * BLOCK_S
        while True:
            due = self._began + (self._sent + 1) * BLOCK_S
            wait = due - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            else:
                self.worst_late_s = max(self.worst_late_s, -wait)
            block = self._next()
            self._sent += 1
            await self._send(block)

    def _next(self) -> Samples:
        block = self._block
        start = self._sent * block
        mixed = np.zeros(block, np.float32)
        if self._background is not None:
            places = (np.arange(start, start + block) - self._background_at) % len(self._background)
            mixed += self._background[places]
        for first, samples in self._queue:
            low, high = max(start, first), min(start + block, first + len(samples))
            if low < high:
                mixed[low - start : high - start] += samples[low - first : high - first]
        self._queue = [(first, samples) for first, samples in self._queue if first + len(samples) > start + block]
        return mixed
