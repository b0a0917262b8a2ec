"""`logprobs` of chat completions and responses: which tokens belong to the text, and how they are written."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

from chat.progress import LikelyToken, ScoredToken


class ScoredText:
    """Passes tokens on with the text that they belong to. Text may be held back, or end at a stop sequence; tokens of
    function calls are no text."""

    def __init__(self) -> None:
        self._held: deque[tuple[int, ScoredToken]] = deque()
        self._generated = self._passed_on = 0
        self._ended = False

    def push(
        self, tokens: Sequence[ScoredToken], text: str, *, finished: bool = False, in_call: bool = False
    ) -> tuple[ScoredToken, ...]:
        """Add generated tokens; returns those whose text begins in what is now passed on.

        Args:
            text: what is now passed on.
            finished: nothing follows, so that the last tokens may be parts of a character.
            in_call: what follows is a function call.
        """
        if self._ended:
            return ()
        for token in tokens:
            self._held.append((self._generated, token))
            self._generated += token.length
        self._passed_on += len(text)
        found: list[ScoredToken] = []
        while self._held and (
            self._held[0][0] < self._passed_on
            or (finished and self._held[0][0] == self._passed_on and not self._held[0][1].length)
        ):
            found.append(self._held.popleft()[1])
        self._ended = in_call
        return tuple(found)


def chat_logprobs(tokens: Sequence[ScoredToken]) -> dict[str, Any]:
    """The `logprobs` object of a choice."""
    return {"content": token_logprobs(tokens), "refusal": None}


def token_logprobs(tokens: Sequence[ScoredToken]) -> list[dict[str, Any]]:
    """One entry for each token, as choices and parts of responses have it."""
    return [{**_entry(token), "top_logprobs": [_entry(other) for other in token.top]} for token in tokens]


def _entry(token: LikelyToken) -> dict[str, Any]:
    return {"token": token.text, "logprob": token.log_probability, "bytes": list(token.data)}
