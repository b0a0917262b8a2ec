"""A model of the listener's audio player: each chunk is played at once, or after the previous one.

It plays no sound and has no clock: every method takes the time, in seconds of one clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from voice.audio.codec import AUDIBLE_AMPLITUDE, OUTPUT_RATE, Samples

_GAP_S = 0.001
"""Shorter gaps are rounding, not silence."""


@dataclass
class Chunk:
    """A chunk of audio, in order of playback.

    Attributes:
        arrived: when it arrived.
        start, end: when its playback starts and ends; a clear moves both to an earlier time.
        audible: when its first and its last audible sample are played; None if it is silent.
        cut: whether the player was cleared before its end.
    """

    response_id: str
    item_id: str
    arrived: float
    start: float
    end: float
    audible: tuple[float, float] | None
    cut: bool = False


@dataclass
class Player:
    """Received audio, and when each sample of it is played.

    Attributes:
        chunks: all chunks, in order of playback.
        gaps: underruns within a response: when each began, and how many seconds it lasted.
    """

    chunks: list[Chunk] = field(default_factory=list)
    gaps: list[tuple[float, float]] = field(default_factory=list)
    _cleared: bool = False

    def push(self, at: float, response_id: str, item_id: str, samples: Samples) -> Chunk:
        """Audio arrives and is appended to the queue."""
        last = self.chunks[-1] if self.chunks else None
        start = at if last is None else max(at, last.end)
        same_response = last is not None and last.response_id == response_id and not self._cleared
        if last is not None and same_response and start > last.end + _GAP_S:
            self.gaps.append((last.end, start - last.end))
        self._cleared = False
        loud = np.flatnonzero(np.abs(samples) >= AUDIBLE_AMPLITUDE)
        audible = None
        if loud.size:
            audible = (start + float(loud[0]) / OUTPUT_RATE, start + float(loud[-1]) / OUTPUT_RATE)
        chunk = Chunk(response_id, item_id, at, start, start + len(samples) / OUTPUT_RATE, audible)
        self.chunks.append(chunk)
        return chunk

    def clear(self, at: float) -> tuple[str, int] | None:
        """Stop playback now. Returns the item that was playing and how many ms of it were heard, or None if nothing was
        playing."""
        if not self.chunks or self.chunks[-1].end <= at:
            return None
        item_id = next((chunk.item_id for chunk in reversed(self.chunks) if chunk.start < at), self.chunks[-1].item_id)
        for chunk in self.chunks:
            if chunk.end > at:
                chunk.start, chunk.end, chunk.cut = min(chunk.start, at), at, True
                if chunk.audible is not None:
                    first, last = chunk.audible
                    chunk.audible = None if first >= at else (first, min(last, at))
        self._cleared = True
        return item_id, self.heard_ms(item_id)

    def heard_ms(self, item_id: str) -> int:
        """How much of an item is played, in ms."""
        return int(1000 * sum(chunk.end - chunk.start for chunk in self.chunks if chunk.item_id == item_id))

    @property
    def end(self) -> float:
        """When the last sample is played; minus infinity if nothing arrived."""
        return self.chunks[-1].end if self.chunks else float("-inf")

    def first_audible(self, since: float = float("-inf")) -> float | None:
        """When the first audible sample at or after `since` is played."""
        return next((c.audible[0] for c in self.chunks if c.audible is not None and c.audible[0] >= since), None)

    def first_audible_of(self, response_id: str) -> float | None:
        """When the first audible sample of a response is played."""
        return next((c.audible[0] for c in self.chunks if c.audible and c.response_id == response_id), None)

    def last_audible(self, response_id: str) -> float | None:
        """When the last audible sample of a response is played."""
        times = (c.audible[1] for c in reversed(self.chunks) if c.audible and c.response_id == response_id)
        return next(times, None)

    def last_arrival(self, response_id: str) -> float | None:
        """When the last audio of a response arrived."""
        return next((c.arrived for c in reversed(self.chunks) if c.response_id == response_id), None)
