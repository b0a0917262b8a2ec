"""The stamps of one turn, from the user's last spoken sample to the first heard one; percentiles over many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Stamp = Literal[
    "speech_end",
    "soft_end",
    "end_decided",
    "transcript_final",
    "first_committed",
    "first_clause",
    "first_audio",
    "first_sent",
]

STAGES: tuple[tuple[str, Stamp, Stamp], ...] = (
    ("soft_end", "speech_end", "soft_end"),
    ("transcription", "soft_end", "transcript_final"),
    ("first_token", "transcript_final", "first_committed"),
    ("first_clause", "first_committed", "first_clause"),
    ("synthesis", "first_clause", "first_audio"),
    ("sending", "first_audio", "first_sent"),
)
"""The stages that a turn's latency is made of, one behind the other: name, from, to. Work starts at the soft end; how
long its result was held back until the end of the turn was sure is part of `sending`."""

END_OF_TURN: tuple[str, Stamp, Stamp] = ("end_of_turn", "speech_end", "end_decided")
"""The wait for the end of the turn, beside those stages."""


@dataclass
class Timeline:
    """When each thing happened in one turn, on one clock.

    Attributes:
        turn_id: the turn's id, the same everywhere.
        stamps: seconds on `time.monotonic`.
        steps, tokens: denoising steps and tokens of the answer.
        prompt_tokens, cached_tokens: of the prompt, and how many were in the cache.
        guesses: how often work on an answer was begun because the user might have finished.
        guess_kept: whether the answer that was heard is one of those.
        waited_ms, over: the silence that ended the turn, and how likely it was thought to be over.
        drafts_spoken, drafts_dropped: first clauses that were synthesized from a draft, used and thrown away.
    """

    turn_id: str
    stamps: dict[Stamp, float] = field(default_factory=dict)
    steps: int = 0
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    guesses: int = 0
    guess_kept: bool = False
    waited_ms: int | None = None
    over: float | None = None
    drafts_spoken: int = 0
    drafts_dropped: int = 0

    def stamp(self, name: Stamp, at: float) -> None:
        """Note the first time that something happened; later times are ignored."""
        self.stamps.setdefault(name, at)

    def stages_ms(self) -> dict[str, float]:
        """Length of each stage that began and ended."""
        return {
            name: round((self.stamps[end] - self.stamps[start]) * 1000, 1)
            for name, start, end in (*STAGES, END_OF_TURN)
            if start in self.stamps and end in self.stamps
        }

    def latency_ms(self) -> float | None:
        """From the last spoken sample to the first one sent, which is audible: leading silence is cut off before."""
        if "speech_end" not in self.stamps or "first_sent" not in self.stamps:
            return None
        return round((self.stamps["first_sent"] - self.stamps["speech_end"]) * 1000, 1)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` (0 to 1) of the values lie, interpolated.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("there is no percentile of nothing")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
