"""An answer under way: what has been committed of it, when it ends, and the progress that is reported."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from model.decode.draft import Draft
from model.tokenizer import TextTokenizer

_CLOSING = tuple(".!?;:,…")
"""What a clause ends with."""


@dataclass(frozen=True)
class Progress:
    """What one denoising step changed.

    Attributes:
        committed: text that is final now, to be put behind all that was committed before.
        draft: text that may follow and may still change.
        step: forward passes of this reply so far, reading the prompt not counted.
        tokens: tokens committed so far.
        finished: why the reply ended, on its last progress only.
        prompt_tokens, cached_tokens: length of the prompt, and how much of it was in the cache already.
        confidence: probability of each token of the draft.
    """

    committed: str
    draft: str
    step: int
    tokens: int
    finished: Literal["stop", "length"] | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    confidence: tuple[float, ...] = ()


class Answer:
    """Collects what a decoder commits.

    Args:
        stop_tokens: ids that end it.
        budget: tokens at most.
        prompt_tokens, cached_tokens: for the progress.
        deliver: is given every progress.

    Attributes:
        tokens: committed so far, the end token not among them.
        finished: why it ended, once it has.
        has_clause: whether something speakable has been committed.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        stop_tokens: frozenset[int],
        budget: int,
        prompt_tokens: int,
        cached_tokens: int,
        deliver: Callable[[Progress], None],
    ) -> None:
        self.tokens: list[int] = []
        self.finished: Literal["stop", "length"] | None = None
        self.has_clause = False
        self._tokenizer, self._stop_tokens = tokenizer, stop_tokens
        self._budget, self._deliver = budget, deliver
        self._prompt_tokens, self._cached_tokens = prompt_tokens, cached_tokens
        self._text = tokenizer.stream()
        self._steps = self._said = 0

    @property
    def left(self) -> int:
        """Tokens that may still be committed."""
        return self._budget - self._said

    def add(self, committed: Sequence[int], draft: Draft) -> None:
        """A pass committed these tokens, and drafted those. Whatever stands behind the end is dropped."""
        committed = committed[: self.left]
        stop = next((n for n, token in enumerate(committed) if token in self._stop_tokens), None)
        spoken = committed if stop is None else committed[:stop]
        self._steps += 1
        self._said += len(spoken) + (stop is not None)
        self.tokens += spoken
        if stop is not None:
            self.finished = "stop"
        elif self._said == self._budget:
            self.finished = "length"
        words = "".join(map(self._text.push, spoken))
        self.has_clause = self.has_clause or any(mark in words for mark in _CLOSING)
        draft = self._until_stop(draft) if self.finished is None else Draft()
        maybe = self._tokenizer.decode(draft.tokens)
        self._deliver(
            Progress(
                words, maybe, self._steps, self._said, self.finished,
                self._prompt_tokens, self._cached_tokens, draft.confidence,
            )
        )  # fmt: skip

    def stops(self, token: int) -> bool:
        """Whether this token ends the answer."""
        return token in self._stop_tokens

    def closes(self, token: int) -> bool:
        """Whether a clause may end behind this token."""
        if token not in self._closing:
            self._closing[token] = self._tokenizer.decode([token]).rstrip().endswith(_CLOSING)
        return self._closing[token]

    @cached_property
    def _closing(self) -> dict[int, bool]:
        return {}

    def _until_stop(self, draft: Draft) -> Draft:
        """A draft up to where it guesses the end."""
        for n, token in enumerate(draft.tokens):
            if token in self._stop_tokens:
                return Draft(draft.tokens[:n], None, draft.confidence[:n])
        return draft
