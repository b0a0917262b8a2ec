"""A model of the listener's player: each piece of sound is played at once or behind the one before it.

No sound and no clock here: every call says when it happens, in seconds of one clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from voice.audio import AUDIBLE, SPEAKING_RATE, Samples

_GAP_S = 0.001
"""Shorter gaps are rounding, not silence."""


@dataclass
class Piece:
    """A stretch of sound in the order of playing.

    Attributes:
        arrived: when it came.
        start, end: when it is played; both are brought forward when the player is cleared.
        audible: when its first audible sample is played, and its last one; None in silence.
        cut: whether the player fell silent before its end.
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
    """What was received and when each sample of it is played.

    Attributes:
        pieces: everything, in order of playing.
        gaps: underruns of a response that went on: when each began, and seconds without sound.
    """

    pieces: list[Piece] = field(default_factory=list)
    gaps: list[tuple[float, float]] = field(default_factory=list)
    _cleared: bool = False

    def push(self, at: float, response_id: str, item_id: str, samples: Samples) -> Piece:
        """Sound arrives; it is appended behind what is waiting."""
        last = self.pieces[-1] if self.pieces else None
        start = at if last is None else max(at, last.end)
        goes_on = last is not None and last.response_id == response_id and not self._cleared
        if last is not None and goes_on and start > last.end + _GAP_S:
            self.gaps.append((last.end, start - last.end))
        self._cleared = False
        loud = np.flatnonzero(np.abs(samples) >= AUDIBLE)
        audible = None
        if loud.size:
            audible = (start + float(loud[0]) / SPEAKING_RATE, start + float(loud[-1]) / SPEAKING_RATE)
        piece = Piece(response_id, item_id, at, start, start + len(samples) / SPEAKING_RATE, audible)
        self.pieces.append(piece)
        return piece

    def clear(self, at: float) -> tuple[str, int] | None:
        """Fall silent now. Returns the item that was sounding and how many ms of it were heard, or None when the
        player was silent already."""
        if not self.pieces or self.pieces[-1].end <= at:
            return None
        item_id = next((piece.item_id for piece in reversed(self.pieces) if piece.start < at), self.pieces[-1].item_id)
        for piece in self.pieces:
            if piece.end > at:
                piece.start, piece.end, piece.cut = min(piece.start, at), at, True
                if piece.audible is not None:
                    first, last = piece.audible
                    piece.audible = None if first >= at else (first, min(last, at))
        self._cleared = True
        return item_id, self.heard_ms(item_id)

    def heard_ms(self, item_id: str) -> int:
        """How much of an item is played."""
        return int(1000 * sum(piece.end - piece.start for piece in self.pieces if piece.item_id == item_id))

    @property
    def end(self) -> float:
        """When the last sample is played; minus infinity when nothing came."""
        return self.pieces[-1].end if self.pieces else float("-inf")

    def first_audible(self, since: float = float("-inf")) -> float | None:
        """When the first audible sample at or after `since` is played."""
        return next((p.audible[0] for p in self.pieces if p.audible is not None and p.audible[0] >= since), None)

    def first_audible_of(self, response_id: str) -> float | None:
        """When the first audible sample of a response is played."""
        return next((p.audible[0] for p in self.pieces if p.audible and p.response_id == response_id), None)

    def last_audible(self, response_id: str) -> float | None:
        """When the last audible sample of a response is played."""
        found = (p.audible[1] for p in reversed(self.pieces) if p.audible and p.response_id == response_id)
        return next(found, None)

    def last_arrival(self, response_id: str) -> float | None:
        """When the last sound of a response came."""
        return next((p.arrived for p in reversed(self.pieces) if p.response_id == response_id), None)
