"""How fast clauses are prepared, compared with how fast they are spoken: bounds the length of the next clause."""

from __future__ import annotations

from dataclasses import dataclass

_NEWEST_SHARE = 0.3
"""Weight of the newest clause in the averages, so that they follow a machine that gets busy within a response."""

_MARGIN = 0.7
"""Share of the measured pace that is relied upon: the next clause may take half as long again as the last ones did."""

_MAX_GROWTH = 2.0
"""However fast the machine is. Longer clauses would sound no better, and more of an interrupted one is wasted."""


@dataclass
class ClausePace:
    """Times per word over the last clauses of a conversation, in seconds; None until there is one.

    The first clauses of a response must play for as long as the next one takes, or the user hears a gap.
    """

    generation_s: float | None = None
    synthesis_s: float | None = None
    speech_s: float | None = None

    def add_generation(self, words: int, seconds: float) -> None:
        """Record how long the language model took for a clause."""
        self.generation_s = _average(self.generation_s, seconds / max(1, words))

    def add_synthesis(self, words: int, seconds: float, speech_seconds: float) -> None:
        """Record how long a clause took to synthesize, and how long it plays."""
        self.synthesis_s = _average(self.synthesis_s, seconds / max(1, words))
        self.speech_s = _average(self.speech_s, speech_seconds / max(1, words))

    @property
    def growth(self) -> float:
        """Words that can be prepared while one is spoken; as many as ever make sense while nothing is known."""
        if self.generation_s is None or self.synthesis_s is None or self.speech_s is None:
            return _MAX_GROWTH
        preparation_s = self.generation_s + self.synthesis_s
        return min(_MAX_GROWTH, _MARGIN * self.speech_s / preparation_s) if preparation_s else _MAX_GROWTH


def _average(average: float | None, value: float) -> float:
    return value if average is None else average + _NEWEST_SHARE * (value - average)
