"""The output of a response: committed tokens, when it ends, and the progress reported to the caller."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from chat.progress import LikelyToken, Progress, ScoredToken
from model.checkpoint.tokenizer import TextTokenizer
from model.decode.draft import Draft
from model.decode.log_probabilities import TokenLogProbability
from model.decode.verify import accepted_length

_CHARACTER_TOKENS = 4
"""Most tokens of a character, of which the first may be committed and the others drafts."""

_CLAUSE_ENDS = tuple(".!?;:,…")
"""Characters that end a clause."""


@dataclass(frozen=True)
class StepOutput:
    """The result of one step of decoding.

    Attributes:
        committed: tokens that are now final.
        log_probabilities: of each committed token, if they were asked for.
    """

    committed: Sequence[int]
    log_probabilities: Sequence[TokenLogProbability] = ()


class GenerationOutput:
    """Collects what a decoder commits.

    Args:
        stop_tokens: ids that end the response.
        max_tokens: maximum number of tokens.
        prompt_tokens, cached_tokens: reported in every progress.
        on_progress: called with every progress.

    Attributes:
        tokens: committed so far, without the stop token.
        finished: why the response ended; None while it is being generated.
        has_clause: whether a speakable clause has been committed.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        stop_tokens: frozenset[int],
        max_tokens: int,
        prompt_tokens: int,
        cached_tokens: int,
        on_progress: Callable[[Progress], None],
    ) -> None:
        self.tokens: list[int] = []
        self.finished: Literal["stop", "length"] | None = None
        self.has_clause = False
        self._tokenizer, self._stop_tokens = tokenizer, stop_tokens
        self._max_tokens, self._on_progress = max_tokens, on_progress
        self._prompt_tokens, self._cached_tokens = prompt_tokens, cached_tokens
        self._detokenizer = tokenizer.detokenizer()
        self._steps = self._num_committed = 0
        self._draft: tuple[int, ...] = ()
        self._drafts_shown = self._drafts_kept = 0
        self._clause_ends: dict[int, bool] = {}
        self._is_reported = True
        """Whether the newest step has been reported."""

    @property
    def remaining(self) -> int:
        """Number of tokens that may still be committed."""
        return self._max_tokens - self._num_committed

    def commit(self, committed: Sequence[int], log_probabilities: Sequence[TokenLogProbability] = ()) -> None:
        """Add the result of a step, and report it if there is any. Tokens after the end of the response are dropped."""
        committed = committed[: self.remaining]
        stop = next((n for n, token in enumerate(committed) if token in self._stop_tokens), None)
        new_tokens = committed if stop is None else committed[:stop]
        self._steps += 1
        self._num_committed += len(new_tokens) + (stop is not None)
        self.tokens += new_tokens
        if new_tokens:
            self._drafts_kept += accepted_length(self._draft, new_tokens)
            self._draft = ()
        if stop is not None:
            self.finished = "stop"
        elif self._num_committed == self._max_tokens:
            self.finished = "length"
        pieces = [self._detokenizer(token) for token in new_tokens]
        text = "".join(pieces)
        scores = tuple(self._scored(entry, len(piece)) for entry, piece in zip(log_probabilities, pieces, strict=False))
        self.has_clause = self.has_clause or any(mark in text for mark in _CLAUSE_ENDS)
        self._is_reported = bool(committed) or self.finished is not None
        if self._is_reported:
            self._on_progress(replace(self._progress(), committed=text, scores=scores))

    def show(self, draft: Draft) -> None:
        """Report what has been drafted since the newest step, or that it has neither committed nor drafted anything."""
        tokens = tuple(itertools.takewhile(lambda token: token not in self._stop_tokens, draft.tokens))
        self._drafts_shown, self._draft = self._drafts_shown + len(tokens), tokens
        if tokens or not self._is_reported:
            before = tuple(self.tokens[-_CHARACTER_TOKENS:])
            texts = [self._characters((*before, *tokens[:count])) for count in range(len(tokens) + 1)]
            start = len(texts[0])
            ends = tuple(len(text) - start for text in texts[1:])
            text = texts[-1][start:]
            shown = replace(self._progress(), draft=text, draft_ends=ends, draft_origin=draft.origin if text else "")
            shown = replace(shown, confidence=draft.confidence[: len(ends)], draft_masked=draft.masked[: len(ends)])
            self._on_progress(shown)
        self._is_reported = True

    def _characters(self, tokens: Sequence[int]) -> str:
        """The text of some tokens up to the last complete character."""
        return self._tokenizer.decode(tokens).rstrip("\ufffd")

    def _progress(self) -> Progress:
        """Progress without any text."""
        return Progress(
            step=self._steps, tokens=self._num_committed, finished=self.finished, prompt_tokens=self._prompt_tokens,
            cached_tokens=self._cached_tokens, drafts_shown=self._drafts_shown, drafts_kept=self._drafts_kept,
        )  # fmt: skip

    def is_stop_token(self, token: int) -> bool:
        """Whether this token ends the response."""
        return token in self._stop_tokens

    def ends_clause(self, token: int) -> bool:
        """Whether a clause may end after this token."""
        if token not in self._clause_ends:
            self._clause_ends[token] = self._tokenizer.decode([token]).rstrip().endswith(_CLAUSE_ENDS)
        return self._clause_ends[token]

    def _scored(self, entry: TokenLogProbability, length: int) -> ScoredToken:
        top = tuple(LikelyToken(*self._spelled(token), value) for token, value in entry.top)
        return ScoredToken(*self._spelled(entry.token), entry.value, length, top)

    def _spelled(self, token: int) -> tuple[str, bytes]:
        data = self._tokenizer.token_bytes(token)
        return data.decode("utf-8", "replace"), data
