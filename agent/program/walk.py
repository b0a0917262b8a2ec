"""Where somebody is who walks, in programs about paths."""

from __future__ import annotations

from fractions import Fraction

TURNS = {"turn_right": 1, "turn_around": 2, "turn_left": 3}
"""Quarters of a turn to the right."""

_STEPS = {"forward": 0, "right": 1, "backward": 2, "left": 3}
"""Steps by their direction, in quarters to the right of where one faces; one faces the same way afterwards."""

_COMPASS = {"north": 0, "east": 1, "south": 2, "west": 3}

MOVES = (*_STEPS, *_COMPASS)
"""Functions that move by the length that they are given."""


class Walk:
    """A place in the plane. It begins at the origin, facing north."""

    def __init__(self) -> None:
        self._facing = 0
        self._north = self._east = Fraction(0)

    def turn(self, name: str) -> None:
        """Turn, as one of `TURNS` says."""
        self._facing = (self._facing + TURNS[name]) % 4

    def move(self, name: str, length: Fraction) -> None:
        """Move, as one of `MOVES` says."""
        direction = _COMPASS[name] if name in _COMPASS else (self._facing + _STEPS[name]) % 4
        if direction in (2, 3):
            length = -length
        if direction % 2:
            self._east += length
        else:
            self._north += length

    @property
    def squared_distance(self) -> Fraction:
        """The square of how far it is to the origin in a straight line."""
        return self._north**2 + self._east**2
