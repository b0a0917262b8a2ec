"""Sentences that calls say word by word, rendered once and kept: greetings, and the questions into a silence."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

import numpy as np

from voice.audio import SPEAKING_RATE, Encoding, encode, resample
from voice.clauses import ClauseSplitter
from voice.stages import Stages

_KEPT = 256
"""Sentences that are kept: 20 MB of ten seconds each."""

_Key = tuple[str, float, Encoding, int]


class Prompts:
    """The sentences of all calls.

    Args:
        stages: whose voice speaks.
    """

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._made: OrderedDict[_Key, asyncio.Task[bytes]] = OrderedDict()

    async def sound(self, text: str, speed: float, encoding: Encoding, rate: int) -> bytes:
        """A sentence as a carrier wants it. Whatever the voice raises is raised to all who wait for it."""
        key = (text, speed, encoding, rate)
        if key not in self._made:
            self._made[key] = asyncio.create_task(self._render(*key))
            while len(self._made) > _KEPT:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        try:
            return await asyncio.shield(self._made[key])
        except Exception:
            self._made.pop(key, None)
            raise

    async def _render(self, text: str, speed: float, encoding: Encoding, rate: int) -> bytes:
        splitter, loop = ClauseSplitter(), asyncio.get_running_loop()
        pieces = [
            await loop.run_in_executor(self._stages.speaking, self._stages.voice.say, clause, speed)
            for clause in [*splitter.push(text), *splitter.flush()]
        ]
        spoken = np.concatenate(pieces) if pieces else np.zeros(0, np.float32)
        return encode(resample(spoken, SPEAKING_RATE, rate), encoding)
