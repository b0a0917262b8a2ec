"""How likely it is that what a user has said so far is a complete turn, from the language model's own state behind the
last word: a logistic regression on that state (model/convert/endings.py trains it). It knows words, not sound or time.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from model.belonging import load_tensors, save_tensors
from model.chat import ChatTemplate, TextMessage
from model.gguf_file import BadModelFile
from model.transformer import PREFILL_CHUNK, text_rows
from model.weights import DecoderConfig

if TYPE_CHECKING:
    from model.batching import Job, Passes
    from model.engine import Engine

_log = logging.getLogger("rejoinder.model")

_WORDS = 40
"""Words that count: more say nothing about whether the last sentence is complete."""

_STEP = 20
"""Words that are dropped at a time, so that what was read of a long turn is mostly read only once."""

_TOKENS = PREFILL_CHUNK
"""Of those words at most, for text without spaces: no one waits longer for a pass than for a piece of a prompt."""

_JOINED = re.compile(r"(?<=\d)[.:](?=\d)|['’](?=\w)")
_SEPARATES = re.compile(r"[^\w\s.:'’]|_|[.:](?!\d)|(?<!\d)[.:]|['’](?!\w)|(?<!\w)['’]")


def prepare_text(text: str) -> str:
    """Lower case without punctuation, because a transcriber ends whatever it heard with a full stop. Apostrophes
    inside words, and points and colons inside numbers, stay."""
    return " ".join(_SEPARATES.sub(" ", text.lower()).replace("’", "'").split())


def header(template: ChatTemplate) -> list[int]:
    """Token ids that stand before a user's first words, without a persona.

    Raises:
        ValueError: the template refuses a conversation that a user begins.
    """
    one, other = (template.encode([TextMessage("user", text)], answer=False) for text in "ab")
    return one[: next(n for n, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)]


@dataclass(frozen=True)
class Ending:
    """P(complete) = σ(weight · state + bias).

    Attributes:
        weight: [hidden] float32.
        base: sha256 of the weights whose states it was trained on.
        metadata: everything the file says about itself: how it was trained, and its figures.
    """

    weight: Tensor
    bias: float
    base: str
    metadata: dict[str, str]

    def __call__(self, states: Tensor) -> Tensor:
        """Normalized states of the last layer behind the last word [n, hidden] → [n] float32, 0 to 1."""
        return torch.sigmoid((states.float().cpu() * self.weight).sum(-1) + self.bias)

    def save(self, path: Path) -> None:
        """Write it, atomically."""
        tensors = {"weight": self.weight.contiguous(), "bias": torch.tensor(self.bias)}
        save_tensors(path, tensors, self.base, self.metadata)


def load_ending(path: Path, config: DecoderConfig, base: str) -> Ending:
    """Open a file that `Ending.save` wrote.

    Args:
        config: the model's shape.
        base: sha256 of the model's weights.

    Raises:
        BadModelFile: missing, damaged, or made for other weights.
    """
    advice = "train one for these weights, or run without"
    stored, metadata = load_tensors(path, "ending classifier", advice, base=base, names=("weight", "bias"))
    weight, bias = stored["weight"].float(), stored["bias"]
    if weight.shape != (config.hidden,) or bias.numel() != 1:
        raise BadModelFile(f"the ending classifier {path.name} has another shape than the model")
    return Ending(weight, float(bias), base, metadata)


class EndingReader:
    """Reads what one user says, word by word as the transcript grows, and tells how complete it is.

    It has a cache of its own, with the chat template's opening and the user's words in it and nothing else, so it
    disturbs no reply: its few rows join the pass that the engine makes for the others.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._cache = engine.model.decoder.new_cache()
        self._job: Job | None = None

    async def ends(self, text: str) -> float | None:
        """How likely it is that `text` is a complete turn, 0 to 1. None when that is not known: no classifier was
        trained for these weights, the pass failed, or a newer question took this one's place."""
        if self._engine.model.ending is None:
            return None
        words = prepare_text(text).split()
        if not words:
            return 0.0
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[float | None] = loop.create_future()

        def settle(value: float | None) -> None:
            if not answer.done():
                answer.set_result(value)

        def deliver(value: float | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, value)

        if self._job is not None:
            self._job.cancelled.set()
        job = self._job = self._engine.submit(
            self._passes(words, deliver),
            lambda error: _log.warning("whether a turn ends is not known: %s", error),
            lambda: deliver(None),
        )
        try:
            return await answer
        finally:
            job.cancelled.set()

    def _passes(self, words: list[str], deliver: Callable[[float | None], None]) -> Passes:
        """One pass over the words that are new."""
        model, cache = self._engine.model, self._cache
        assert model.ending is not None
        opening = header(model.template)
        dropped = max(0, -(-(len(words) - _WORDS) // _STEP)) * _STEP
        ids = opening + model.tokenizer.encode(" ".join(words[dropped:]))[-_TOKENS:]
        self._engine.prefixes.lend(cache, ids)
        cache.truncate(min(cache.common(ids), len(ids) - 1))
        new = ids[len(cache.tokens) :]
        states: Tensor = yield text_rows(cache, new, 1, self._engine.attention, self._engine.block, states=True)
        cache.commit(new)
        self._engine.prefixes.keep(cache, len(opening))
        deliver(float(model.ending(states)))
