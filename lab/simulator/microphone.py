"""A simulated microphone that is always on: blocks of 20 ms on an absolute schedule, silent while nothing is played.

A sample's time is its position on the schedule. A block is sent when its last sample has been spoken, as a sound card
does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import numpy as np

from voice.audio.codec import OUTPUT_RATE, Samples
from voice.audio.resampling import resample

BLOCK_S = 0.02


class Microphone:
    """Streams until it is cancelled.

    Args:
        send: called with each block, [T] float32 at `rate`.
        rate: Hz of the blocks; audio to play is at 24 kHz.

    Attributes:
        max_lateness_s: maximum delay of a block relative to the schedule, since this was last set to 0.
    """

    def __init__(self, send: Callable[[Samples], Awaitable[None]], rate: int = OUTPUT_RATE) -> None:
        self._send, self._rate = send, rate
        self._block = round(BLOCK_S * rate)
        self._started_at = time.monotonic()
        self._blocks_sent = 0
        self._queue: list[tuple[int, Samples]] = []
        self._background: Samples | None = None
        self._background_start = 0
        self.max_lateness_s = 0.0

    async def play(self, samples: Samples, at: float | None = None) -> float:
        """Play audio from the next block on, or from `at`; overlapping audio is mixed.

        Returns:
            The time of the first sample, on `time.monotonic`.
        """
        first = self._blocks_sent * self._block
        if at is not None:
            first = max(first, round((at - self._started_at) * self._rate))
        self._queue.append((first, resample(samples, OUTPUT_RATE, self._rate)))
        return self._started_at + first / self._rate

    async def set_background(self, background: Samples | None) -> None:
        """Loop a background sound under everything from now on; None ends it."""
        self._background = None if background is None else resample(background, OUTPUT_RATE, self._rate)
        self._background_start = self._blocks_sent * self._block

    async def run(self) -> None:
        """Send block after block."""
        self._started_at = time.monotonic() - self._blocks_sent * BLOCK_S
        while True:
            due = self._started_at + (self._blocks_sent + 1) * BLOCK_S
            wait = due - time.monotonic()
            if wait > 0:
                await asyncio.sleep(wait)
            self.max_lateness_s = max(self.max_lateness_s, time.monotonic() - due)
            block = self._next_block()
            self._blocks_sent += 1
            await self._send(block)

    def _next_block(self) -> Samples:
        block = self._block
        start = self._blocks_sent * block
        mixed = np.zeros(block, np.float32)
        if self._background is not None:
            positions = (np.arange(start, start + block) - self._background_start) % len(self._background)
            mixed += self._background[positions]
        for first, samples in self._queue:
            low, high = max(start, first), min(start + block, first + len(samples))
            if low < high:
                mixed[low - start : high - start] += samples[low - first : high - first]
        self._queue = [(first, samples) for first, samples in self._queue if first + len(samples) > start + block]
        return mixed
