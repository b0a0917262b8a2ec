"""Generates text for many prompts at once: a sequence that finishes is replaced by the next prompt."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lab.convert.padded_batch import PaddedBatch, SystemPromptCache, pad_sequences
from model.nn.decoder import Decoder
from model.nn.linear import float32_product

_REFILL = 8
"""Slots are refilled once 1/8 of them are free: the prefill of one prompt costs nearly as much as that of eight."""

_BUCKET = 64
"""Attention lengths are multiples of this many positions, so that a GPU sees few shapes."""

_TOP_K = 50
"""Tokens are sampled among this many most likely ones; the rest is noise that should not become training data."""

_HEAD_CHUNK = 8192
"""Vocabulary entries whose logits are computed at a time: they stay in the cache, and none are stored."""


@dataclass(frozen=True)
class Prompt:
    """A prompt to be continued.

    Attributes:
        tokens: its token ids, at least one.
        max_tokens: maximum number of tokens to generate.
        temperature: 0 generates the most likely token each time.
    """

    tokens: tuple[int, ...]
    max_tokens: int
    temperature: float = 0.0


def generate(
    decoder: Decoder,
    prompts: Sequence[Prompt],
    stop: frozenset[int],
    *,
    batch_size: int,
    seed: int,
    on_progress: Callable[[int], None] = lambda done: None,
) -> list[list[int]]:
    """Continue each prompt until a stop token (which is included) or its maximum number of tokens.

    Args:
        stop: ids of the tokens that end a text.
        batch_size: number of sequences generated at a time.
        seed: seed of the sampling. The same seed, prompts and device give the same texts.
        on_progress: called after each step with the number of finished texts.

    Returns:
        The new tokens for each prompt, in the order of the prompts.
    """
    if not prompts:
        return []
    return _BatchGenerator(decoder, prompts, stop, min(batch_size, len(prompts)), seed).run(on_progress)


class _BatchGenerator:
    def __init__(
        self, decoder: Decoder, prompts: Sequence[Prompt], stop: frozenset[int], batch_size: int, seed: int
    ) -> None:
        self._decoder, self._prompts = decoder, prompts
        longest = max(len(prompt.tokens) + prompt.max_tokens for prompt in prompts) + 1
        max_length = -(-longest // _BUCKET) * _BUCKET
        self._batch = PaddedBatch(decoder, batch_size, min(max_length, decoder.config.context_length))
        self._outputs: list[list[int]] = [[] for _ in prompts]
        self._system_prompts = SystemPromptCache(self._batch, stop)
        lengths = [len(prompt.tokens) - self._system_prompts.length(prompt.tokens) for prompt in prompts]
        # Prompts of similar length are prefilled together, which needs little padding.
        self._waiting = deque(sorted(range(len(prompts)), key=lengths.__getitem__))
        self._prompt_of: list[int | None] = [None] * batch_size
        device = decoder.device
        self._last_tokens = torch.zeros(batch_size, dtype=torch.long, device=device)
        self._positions = torch.zeros(batch_size, dtype=torch.long, device=device)
        self._temperature = torch.zeros(batch_size, device=device)
        self._generator = torch.Generator(device=device).manual_seed(seed)
        self._stop = stop

    @torch.no_grad()
    def run(self, on_progress: Callable[[int], None]) -> list[list[int]]:
        finished = 0
        while True:
            free = [slot for slot, prompt in enumerate(self._prompt_of) if prompt is None]
            if self._waiting and len(free) * _REFILL >= len(self._prompt_of):
                finished += self._fill(free)
            elif len(free) == len(self._prompt_of):
                return self._outputs
            finished += self._step()
            on_progress(finished)

    def _fill(self, free: list[int]) -> int:
        """Prefill the next prompts into free slots, and generate the first token of each."""
        assigned = [(slot, self._waiting.popleft()) for slot, _ in zip(free, range(len(self._waiting)), strict=False)]
        heads = [self._system_prompts.fill(slot, self._prompts[n].tokens) for slot, n in assigned]
        remaining = [self._prompts[n].tokens[head:] for (_, n), head in zip(assigned, heads, strict=True)]
        padded = pad_sequences(remaining, self._batch.padded(max(map(len, remaining))))
        device = self._decoder.device
        slots = torch.tensor([slot for slot, _ in assigned], device=device)
        starts = torch.tensor(heads, device=device)
        lengths = torch.tensor([len(self._prompts[n].tokens) for _, n in assigned], device=device)
        attended = self._batch.padded(max(heads) + padded.shape[1])
        states = self._batch.forward(padded.to(device), starts, slots, attended=attended)
        self._positions[slots] = lengths
        self._temperature[slots] = torch.tensor([self._prompts[n].temperature for _, n in assigned], device=device)
        for slot, n in assigned:
            self._prompt_of[slot] = n
        last = states[torch.arange(len(assigned), device=device), lengths - starts - 1]
        self._last_tokens[slots] = self._sample(last, self._temperature[slots])
        return self._append(slots.tolist())

    def _step(self) -> int:
        busy = [slot for slot, prompt in enumerate(self._prompt_of) if prompt is not None]
        if not busy:
            return 0
        attended = -(-(int(self._positions.max()) + 1) // _BUCKET) * _BUCKET
        states = self._batch.forward(
            self._last_tokens[:, None], self._positions, attended=min(attended, self._batch.max_length)
        )
        self._last_tokens.copy_(self._sample(states[:, 0], self._temperature))
        self._positions += 1
        self._positions.clamp_(max=self._batch.max_length - 1)  # idle slots stay in range
        return self._append(busy)

    def _sample(self, states: Tensor, temperature: Tensor) -> Tensor:
        sampled = temperature > 0
        values, tokens = top_logits(self._decoder, states, _TOP_K if bool(sampled.any()) else 1)
        probabilities = (values / temperature.clamp(min=1e-3)[:, None]).softmax(-1)
        drawn = torch.multinomial(probabilities, 1, generator=self._generator)[:, 0]
        return tokens.gather(1, torch.where(sampled, drawn, 0)[:, None])[:, 0]

    def _append(self, slots: list[int]) -> int:
        """Append the newest token of each slot to its output; returns how many texts are now finished."""
        finished = 0
        newest = self._last_tokens.tolist()
        for slot in slots:
            n = self._prompt_of[slot]
            assert n is not None
            self._outputs[n].append(newest[slot])
            if newest[slot] in self._stop or len(self._outputs[n]) >= self._prompts[n].max_tokens:
                self._prompt_of[slot] = None
                self._positions[slot] = 0
                finished += 1
        return finished


def top_logits(decoder: Decoder, states: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest logits of each state [n, hidden], sorted, and their tokens: [n, count] each."""
    weight = decoder.head_weight
    parts = []
    for start in range(0, weight.shape[0], _HEAD_CHUNK):
        logits = float32_product(states, weight[start : start + _HEAD_CHUNK])
        top = logits.max(-1, keepdim=True) if count == 1 else logits.topk(min(count, logits.shape[1]))
        parts.append((top.values, top.indices + start))
    values, tokens = (torch.cat(part, 1) for part in zip(*parts, strict=True))
    best = values.topk(count)
    return best.values, tokens.gather(1, best.indices)
