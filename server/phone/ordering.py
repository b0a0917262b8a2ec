"""The caller's sound in its order: pieces that overtook each other are put back, and what is lost becomes silence."""

from __future__ import annotations

MOST_HELD = 3
"""Pieces that wait for an earlier one: 60 ms. What comes later than that is lost; the turn's end should not wait."""

_MOST_LOST = 50
"""A gap beyond this, a second, is not filled: the carrier counts anew, or paused."""


class Ordering:
    """One stream of numbered pieces.

    Args:
        silence: a byte of silence.
    """

    def __init__(self, silence: int) -> None:
        self._silence = silence
        self._next: int | None = None
        self._held: dict[int, bytes] = {}
        self.lost = 0

    def push(self, data: bytes, number: int | None) -> bytes:
        """The next piece as it came; returns the sound that is in order now, none while an earlier piece is awaited.

        Args:
            number: counts pieces by one; None where nothing can be told.
        """
        if number is None:
            return data
        if self._next is None or abs(number - self._next) > _MOST_LOST:
            self._next, self._held = number, {}
        if number < self._next:
            return b""  # its place has been filled
        self._held.setdefault(number, data)
        out = self._in_order()
        if len(self._held) > MOST_HELD:
            missing = min(self._held) - self._next
            self.lost += missing
            self._next += missing
            out += bytes([self._silence]) * (missing * len(data)) + self._in_order()
        return out

    def _in_order(self) -> bytes:
        out = b""
        while self._next is not None and self._next in self._held:
            out += self._held.pop(self._next)
            self._next += 1
        return out
