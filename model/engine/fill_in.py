"""Fill-in-the-middle: generates what belongs between two pieces of code, for models that were trained to."""

from __future__ import annotations

from collections.abc import AsyncIterator

from chat.progress import Progress
from chat.types import Ask
from model.checkpoint.tokenizer import TextTokenizer
from model.decode.sampling import Sampling
from model.engine.conversation import Conversation, ResponseOptions
from model.engine.response_form import ResponseForm

_MARKERS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, SmolLM
)
"""The control tokens that each family was trained with."""

_ENDS = ("<|fim_pad|>", "<|file_sep|>", "<|repo_name|>", "<|endoftext|>", "<fim_pad>", "<file_sep>")
"""Tokens after which nothing belongs to the middle."""

_PREFIX_SHARE = 0.75
"""Share of the context that the code before the gap may take, if both sides do not fit: it says more than what
follows."""


class FillIn(Conversation):
    """Fills gaps in code."""

    def fill_in(
        self, before: str, after: str, *, max_tokens: int | None = None, sampling: Sampling | None = None
    ) -> AsyncIterator[Progress]:
        """Generate what belongs between `before` and `after`. Yields progress after every step.

        Of code that does not fit into the context, the parts next to the gap are read.

        Raises:
            ValueError: the model was not trained for this, denoises blocks, or `max_tokens` is below 1.
            RuntimeError: the request failed, or the engine was closed.
        """
        engine = self._engine
        if engine.diffusion is not None:
            raise ValueError("a model that denoises blocks cannot fill in: choose the decoding `verified`")
        if max_tokens is not None and max_tokens < 1:
            raise ValueError(f"max_tokens is {max_tokens} and must be 1 or more")
        tokenizer = engine.model.tokenizer
        prefix, suffix, middle = _markers(tokenizer)
        room = engine.context - 3 - min(max_tokens or engine.context, engine.context // 4)
        head, tail = tokenizer.encode(before), tokenizer.encode(after)
        most_of_tail = max(room - len(head), room - int(room * _PREFIX_SHARE))
        tail = tail[:most_of_tail]
        head = head[max(0, len(head) - (room - len(tail))) :]
        ids = [prefix, *head, suffix, *tail, middle]
        ends = frozenset(token for end in _ENDS if (token := tokenizer.token_id(end)) is not None)
        encoded = ids, engine.context - len(ids)
        options = ResponseOptions(engine.denoising_schedule, ResponseForm(), ends, encoded)
        return self._respond(Ask([], max_tokens=max_tokens, sampling=sampling), (), options)


def _markers(tokenizer: TextTokenizer) -> tuple[int, int, int]:
    """The ids of the control tokens. Raises ValueError."""
    for names in _MARKERS:
        ids = [tokenizer.token_id(name) for name in names]
        if all(token is not None for token in ids):
            return ids[0], ids[1], ids[2]  # type: ignore[return-value]
    raise ValueError("this model was not trained to fill in the middle: it lacks the control tokens for it")
