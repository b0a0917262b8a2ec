"""A microphone that never closes: blocks of 20 ms on an absolute schedule, silence where nothing is said.

A sample's moment is where it lies on the schedule; its block is sent when the block's last sample has been spoken, as
a sound card does it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable

import numpy as np

from voice.audio import SPEAKING_RATE, Samples, to_pcm16

BLOCK_S = 0.02
BLOCK = round(BLOCK_S * SPEAKING_RATE)


def _event(samples: Samples) -> str:
    audio = base64.b64encode(to_pcm16(samples)).decode("ascii")
    return json.dumps({"type": "input_audio_buffer.append", "audio": audio})


_SILENCE = _event(np.zeros(BLOCK, np.float32))


class Microphone:
    """Streams until it is cancelled.

    Args:
        send: takes one text frame.

    Attributes:
        worst_late_s: how far behind the schedule the latest block of all was sent, since it was last set to 0.
    """

    def __init__(self, send: Callable[[str], Awaitable[None]]) -> None:
        self._send = send
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
        first = self._sent * BLOCK
        if at is not None:
            first = max(first, round((at - self._began) * SPEAKING_RATE))
        self._queue.append((first, samples))
        return self._began + first / SPEAKING_RATE

    def surround(self, background: Samples | None) -> None:
        """Mix a loop into everything from now on; None ends it."""
        self._background, self._background_at = background, self._sent * BLOCK

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
            frame = self._next()
            self._sent += 1
            await self._send(frame)

    def _next(self) -> str:
        if not self._queue and self._background is None:
            return _SILENCE
        start = self._sent * BLOCK
        mixed = np.zeros(BLOCK, np.float32)
        if self._background is not None:
            places = (np.arange(start, start + BLOCK) - self._background_at) % len(self._background)
            mixed += self._background[places]
        for first, samples in self._queue:
            low, high = max(start, first), min(start + BLOCK, first + len(samples))
            if low < high:
                mixed[low - start : high - start] += samples[low - first : high - first]
        self._queue = [(first, samples) for first, samples in self._queue if first + len(samples) > start + BLOCK]
        return _event(mixed)
