"""What it took to work something out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from agent.language_model import LanguageModel
from chat.progress import Progress
from chat.types import Ask


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
