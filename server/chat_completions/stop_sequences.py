"""Ends a text at the first of several stop sequences, while the text is still being generated."""

from __future__ import annotations

from collections.abc import Sequence


class StopSequences:
    """Passes a growing text on as far as no stop sequence can begin in it.

    Attributes:
        stopped: whether a stop sequence was found. What follows it is dropped.
    """

    def __init__(self, sequences: Sequence[str]) -> None:
        self.stopped = False
        self._sequences, self._held = tuple(sequences), ""

    def push(self, text: str, *, last: bool = False) -> str:
        """Add text; returns what is now certain to belong to the result.

        Args:
            last: nothing follows, so nothing is held back.
        """
        if self.stopped:
            return ""
        self._held += text
        found = [start for sequence in self._sequences if (start := self._held.find(sequence)) >= 0]
        if found:
            self.stopped = True
            end = min(found)
        else:
            end = len(self._held) - (0 if last else self._possible_start())
        out, self._held = self._held[:end], self._held[end:]
        return out

    def _possible_start(self) -> int:
        """Length of the longest end of the text that may become a stop sequence."""
        return max(
            (
                length
                for sequence in self._sequences
                for length in range(1, min(len(sequence), len(self._held) + 1))
                if self._held.endswith(sequence[:length])
            ),
            default=0,
        )
