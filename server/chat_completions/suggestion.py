"""Where an editor's suggestion ends, as llama.cpp's server ends it: before a line that is indented less than the editor
wants, and with the line at which its time is over."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import replace

from server.chat_completions.generation import Update


class SuggestionEnd:
    """Passes a growing suggestion on.

    Args:
        indent: whitespace that every line after the first must begin with, in characters; empty lines need none.
        limit_s: time from the first text, after which the suggestion ends with the current line; 0 for none.
        clock: in s.

    Attributes:
        reached: whether the suggestion has ended. What follows is dropped.
    """

    def __init__(self, indent: int = 0, limit_s: float = 0.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.reached = False
        self._indent, self._limit_s, self._clock = indent, limit_s, clock
        self._began: float | None = None
        self._text, self._shown = "", 0

    def push(self, text: str, *, last: bool = False) -> str:
        """Add text; returns what is now certain to belong to the suggestion.

        Args:
            last: nothing follows, so nothing is held back.
        """
        if self._began is None:
            self._began = self._clock()
        start = len(self._text)
        self._text += text
        end = self._certain_end(last)
        if self._limit_s and self._clock() - self._began > self._limit_s:
            newline = self._text.find("\n", start, end)
            if newline >= 0:
                end, self.reached = newline + 1, True
        shown, self._shown = self._text[self._shown : end], max(self._shown, end)
        return shown

    def _certain_end(self, last: bool) -> int:
        """How much of the text belongs to the suggestion. The whitespace of a new line is held back."""
        line = self._text.find("\n") + 1 if self._indent else 0
        while line:
            following = self._text.find("\n", line)
            content = self._text[line : len(self._text) if following < 0 else following]
            words = content.lstrip(" \t")
            if len(content) - len(words) < self._indent:
                if words:
                    self.reached = True
                    return line
                if following < 0 and not last:
                    return line
            line = following + 1
        return len(self._text)


async def until_end(updates: AsyncIterator[Update], end: SuggestionEnd) -> AsyncIterator[Update]:
    """The updates of a suggestion up to its end. Leaving the iterator early cancels it."""
    async with aclosing(updates):  # type: ignore[type-var]
        async for update in updates:
            text = end.push(update.text, last=update.finish_reason is not None)
            yield replace(update, text=text, finish_reason="length" if end.reached else update.finish_reason)
            if end.reached:
                return
