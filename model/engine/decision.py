"""Typed decisions: how likely each of a few possible answers is. Nothing is generated."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from chat.types import Message
from model.decode.option_tree import OptionTree
from model.engine.conversation import Conversation
from model.nn.forward_batch import PREFILL_CHUNK

MAX_OPTION_TOKENS = 16
"""Length of an option."""

MAX_NODES = 512
"""Rows of a forward pass over all options."""


@dataclass(frozen=True)
class OptionScores:
    """The result of a decision.

    Attributes:
        probabilities: of each option; they sum to 1.
        prompt_tokens, cached_tokens: length of the prompt, and how much of it was in the cache already.
    """

    probabilities: tuple[float, ...]
    prompt_tokens: int
    cached_tokens: int


class Decider(Conversation):
    """A conversation that can also be asked how likely given answers are.

    All options are scored in one forward pass behind the prompt, of which the cache may hold a part.
    """

    async def score(self, messages: Sequence[Message], options: Sequence[str]) -> OptionScores:
        """How likely each option is as the whole answer to the conversation, if it is one of them.

        Raises:
            PromptTooLong: the conversation does not fit.
            ValueError: there is no option, two are equal, one is empty or too long, they are too many, or the model
                denoises blocks.
            RuntimeError: the forward pass failed, or the engine was closed.
        """
        tree = self._tree(options)

        def steps() -> Generator[Any, Any, OptionScores]:
            ids, _ = self._encode(list(messages), (), True)
            num_cached = self._truncate_to(ids[:-1])
            yield from self._read_instructions(messages, (), ids[:-1])
            cached = len(self._cache.tokens)
            yield from self._read(ids[: cached + (len(ids) - 1 - cached) // PREFILL_CHUNK * PREFILL_CHUNK])
            rest = ids[len(self._cache.tokens) :]
            logits: Tensor = yield tree.forward_input(self._cache, rest)
            self._cache.commit(rest)
            return OptionScores(tuple(tree.probabilities(logits)), len(ids), num_cached)

        return await self._result_of(steps(), "decision")

    def _tree(self, options: Sequence[str]) -> OptionTree:
        """The options' tokens. Raises ValueError."""
        engine = self._engine
        if engine.diffusion is not None:
            raise ValueError("a model that denoises blocks cannot score options: choose the decoding `verified`")
        if not options or len(set(options)) < len(options):
            raise ValueError("the options must be different, and at least one")
        encoded = [engine.model.tokenizer.encode(option) for option in options]
        for option, ids in zip(options, encoded, strict=True):
            if not ids or len(ids) > MAX_OPTION_TOKENS:
                raise ValueError(f"the option {option!r} has {len(ids)} tokens: 1 to {MAX_OPTION_TOKENS} are allowed")
        tree = OptionTree(encoded, engine.model.stop_tokens)
        if tree.num_nodes > MAX_NODES:
            raise ValueError(f"the options take {tree.num_nodes} rows, and {MAX_NODES} are allowed: ask for fewer")
        return tree
