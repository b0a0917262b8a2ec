"""Reads what a user says as the transcript grows, and estimates after each update whether the turn is complete."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future

from torch import Tensor

from model.engine.engine import Engine
from model.engine.scheduler import Request, RequestSteps
from model.engine.turn_completion import normalize_text, user_turn_prefix
from model.nn.forward_batch import PREFILL_CHUNK, text_input

_log = logging.getLogger("rejoinder.model")

_MAX_WORDS = 40
"""Earlier words are dropped: they say nothing about whether the last sentence is complete."""

_DROP_STEP = 20
"""Words that are dropped at a time, so that most of a long turn is read only once."""

_MAX_TOKENS = PREFILL_CHUNK
"""Maximum tokens of those words, for text without spaces: the forward pass takes no longer than one with a prompt
chunk."""


class TurnCompletionReader:
    """Reads what one user says, word by word as the transcript grows, and estimates whether the turn is complete.

    It has its own cache, which holds only the chat template's opening and the user's words, so it disturbs no response.
    Its few rows join the forward pass that the engine runs for other requests.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cache = engine.model.decoder.new_cache()
        self._request: Request | None = None

    async def probability(self, text: str) -> float | None:
        """The probability (0 to 1) that `text` is a complete turn. None if it is unknown: no classifier was trained for
        these weights, the forward pass failed, or a newer call replaced this one."""
        if self._engine.model.turn_completion is None:
            return None
        words = normalize_text(text).split()
        if not words:
            return 0.0
        result: Future[float | None] = Future()
        result.set_running_or_notify_cancel()  # whoever stops waiting does not cancel it, so it can always be set
        request = self._submit(words, result)
        try:
            return await asyncio.wrap_future(result)
        finally:
            request.cancelled.set()

    def prepare(self, text: str) -> None:
        """Read `text` while the user is still speaking, so that `probability` need not. Returns at once."""
        words = normalize_text(text).split()
        if words and self._engine.model.turn_completion is not None:
            self._submit(words, Future())

    def _submit(self, words: list[str], result: Future[float | None]) -> Request:
        def end() -> None:
            if not result.done():
                result.set_result(None)

        if self._request is not None:
            self._request.cancelled.set()
        self._request = self._engine.submit(
            self._steps(words, result),
            lambda error: _log.warning("the turn-completion classifier failed (%s)", type(error).__name__),
            end,
        )
        return self._request

    def _steps(self, words: list[str], result: Future[float | None]) -> RequestSteps:
        """One forward pass over the new words."""
        model, cache = self._engine.model, self._cache
        assert model.turn_completion is not None
        prefix = user_turn_prefix(model.template)
        num_dropped = max(0, -(-(len(words) - _MAX_WORDS) // _DROP_STEP)) * _DROP_STEP
        ids = prefix + model.tokenizer.encode(" ".join(words[num_dropped:]))[-_MAX_TOKENS:]
        self._engine.prefix_cache.fill(cache, ids)
        cache.truncate(min(cache.common_prefix_length(ids), len(ids) - 1))
        new = ids[len(cache.tokens) :]
        states: Tensor = yield text_input(
            cache, new, 1, self._engine.attention, self._engine.block_size, return_hidden_states=True
        )
        cache.commit(new)
        self._engine.prefix_cache.add(cache, len(prefix))
        result.set_result(float(model.turn_completion(states)))
