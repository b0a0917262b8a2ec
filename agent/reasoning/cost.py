"""What it took to work something out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from agent.language_model import LanguageModel
from chat.progress import Progress
from chat.types import Ask

_MAX_CACHED_TOKENS = 8192
"""Of the prompts of all requests of a batch, of which each has a copy: 0.5 GB with the 1.5B. After a long conversation
there are fewer of them."""


@dataclass
class Cost:
    """What was read and generated.

    Attributes:
        prompt_tokens, cached_tokens: of the longest prompt, and how many tokens were in a cache already.
        tokens: generated, with those of samples that were given up.
        steps: forward passes of all samples. They share them, so there were fewer.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    steps: int = 0

    @property
    def max_prompts(self) -> int:
        """How many requests may have a copy of this prompt at the same time; 0 if it is too long for any."""
        return _MAX_CACHED_TOKENS // max(1, self.prompt_tokens)

    async def counted(self, replying: AsyncIterator[Progress]) -> AsyncIterator[Progress]:
        """The same progress, counted."""
        tokens = steps = 0
        async for progress in replying:
            self.tokens += progress.tokens - tokens
            self.steps += progress.step - steps
            self.prompt_tokens = max(self.prompt_tokens, progress.prompt_tokens)
            self.cached_tokens = self.cached_tokens or progress.cached_tokens
            tokens, steps = progress.tokens, progress.step
            yield progress

    async def write(
        self, model: LanguageModel, ask: Ask, until: Callable[[str, int], object | None] | None = None
    ) -> str:
        """What a language model writes; empty if it was cut off.

        Args:
            until: given the text and how much of it was seen before, ends it where it returns something.
        """
        text = ""
        async with aclosing(model.reply(ask)) as replying:  # type: ignore[type-var]
            async for progress in self.counted(replying):
                seen, text = len(text), text + progress.committed
                if progress.finished == "length":
                    return ""
                if until is not None and progress.committed and until(text, seen) is not None:
                    break
        return text
