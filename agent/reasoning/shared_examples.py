"""Language models that have read the examples of prompts: what many requests begin with is read once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from agent.language_model import LanguageModel
from agent.reasoning.cost import Cost
from chat.types import Ask, Message


class SharedExamples:
    """Reads examples when they are first needed.

    Args:
        model: for this alone. What it has read is kept as long as this is.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._readers: dict[tuple[str, ...], LanguageModel] = {}
        self._lock = asyncio.Lock()

    async def reader(self, examples: Sequence[Message], cost: Cost) -> LanguageModel:
        """A language model for one request that has read these messages.

        Args:
            cost: of the request, which pays for reading them if it is the first.

        Raises:
            ValueError: they do not fit into the context.
            RuntimeError: the language model failed.
        """
        key = tuple(message.content for message in examples)
        async with self._lock:
            if key not in self._readers:
                reader = self._model.fork()
                await cost.write(reader, Ask(examples, max_tokens=1))
                self._readers[key] = reader
        return self._readers[key].fork()
