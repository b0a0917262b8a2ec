"""What the clients in Python share: the recorded sentences, and a microphone that plays them in real time.

It runs in the environments of the clients, so it imports nothing of theirs or of Rejoinder.
"""

from __future__ import annotations

import asyncio
import time
import wave
from collections.abc import AsyncIterator
from pathlib import Path

RATE = 24_000
BLOCK_MS = 20
_BLOCK_BYTES = RATE * BLOCK_MS // 1000 * 2

SENTENCES = {
    "question": "What is the capital of France?",
    "story": "Please tell me a long story about a lighthouse keeper and his dog.",
    "interruption": "Stop, please. What is the capital of Italy?",
    "weather": "What is the weather like in London?",
}
"""The sentences that the user speaks, by the name of their file."""

WEATHER = "It is raining in London and the temperature is eleven degrees."
"""What the function returns."""

INSTRUCTIONS = "You are a friendly voice assistant. Answer in one or two short sentences."


class Microphone:
    """Plays recordings and otherwise silence, 20 ms at a time.

    Attributes:
        ended_at: when the newest recording had been played, on `time.monotonic`.
    """

    def __init__(self, folder: Path) -> None:
        self.ended_at = 0.0
        self._folder = folder
        self._pending = b""

    def speak(self, name: str) -> None:
        """Play a recording from now on."""
        with wave.open(str(self._folder / f"{name}.wav")) as file:
            assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2)
            self._pending = file.readframes(file.getnframes())

    async def blocks(self) -> AsyncIterator[bytes]:
        """Blocks of 16-bit samples, in real time."""
        started, count = time.monotonic(), 0
        while True:
            block, self._pending = self._pending[:_BLOCK_BYTES], self._pending[_BLOCK_BYTES:]
            yield block.ljust(_BLOCK_BYTES, b"\0")
            count += 1
            if block and not self._pending:
                self.ended_at = started + count * BLOCK_MS / 1000
            await asyncio.sleep(started + count * BLOCK_MS / 1000 - time.monotonic())
