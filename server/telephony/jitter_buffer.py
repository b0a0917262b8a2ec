"""Puts the caller's audio chunks back in order and replaces lost ones with silence."""

from __future__ import annotations

MAX_WAITING = 3
"""Chunks that wait for an earlier one: 60 ms. Anything later counts as lost, so that the end of a turn is not late."""

_MAX_GAP = 50
"""A gap of more chunks than this, one second, is not filled: the carrier restarted its count, or paused."""


class JitterBuffer:
    """Reorders one stream of numbered chunks.

    Args:
        silence: a byte of silence.
    """

    def __init__(self, silence: int) -> None:
        self._silence = silence
        self._next: int | None = None
        self._waiting: dict[int, bytes] = {}

    def push(self, data: bytes, number: int | None) -> bytes:
        """Add a chunk as it arrived. Returns the audio that is now in order, empty while an earlier chunk is missing.

        Args:
            number: sequence number of the chunk; None if the carrier sends none.
        """
        if number is None:
            return data
        if self._next is None or abs(number - self._next) > _MAX_GAP:
            self._next, self._waiting = number, {}
        if number < self._next:
            return b""  # already replaced by silence
        self._waiting.setdefault(number, data)
        out = self._pop_in_order()
        if len(self._waiting) > MAX_WAITING:
            missing = min(self._waiting) - self._next
            self._next += missing
            out += bytes([self._silence]) * (missing * len(data)) + self._pop_in_order()
        return out

    def _pop_in_order(self) -> bytes:
        out = b""
        while self._next is not None and self._next in self._waiting:
            out += self._waiting.pop(self._next)
            self._next += 1
        return out
