"""Writes many texts at once with the base model: lanes that finish are given the next prompt."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.convert.lanes import Instructions, Lanes, padded_together
from model.transformer import Decoder

_REFILL = 8
"""Free lanes are filled when a share of 1/8 is free: a prompt read alone costs nearly what eight together do."""

_BUCKET = 64
"""Attention looks at whole multiples of this many positions, so that a GPU sees few shapes."""

_LIKELY = 50
"""Tokens are drawn among this many likeliest: what lies beyond is noise that nobody should learn from."""

_HEAD_CHUNK = 8192
"""Logits are made for this much of the vocabulary at a time: they stay in the cache, and none are kept."""


@dataclass(frozen=True)
class Prompt:
    """A text to be continued.

    Attributes:
        tokens: what it begins with, at least one.
        most: tokens to write at most.
        temperature: 0 writes the likeliest token each time.
    """

    tokens: tuple[int, ...]
    most: int
    temperature: float = 0.0


def generate(
    decoder: Decoder,
    prompts: Sequence[Prompt],
    stop: frozenset[int],
    *,
    lanes: int,
    seed: int,
    report: Callable[[int], None] = lambda done: None,
) -> list[list[int]]:
    """Continue each prompt until a stop token (which is kept) or its limit.

    Args:
        stop: ids that end a text.
        lanes: how many are written side by side.
        seed: of the draws; the same seed, prompts and device write the same texts.
        report: called with the number of finished texts now and then.

    Returns:
        The new tokens of each, in the order of the prompts.
    """
    if not prompts:
        return []
    return _Writer(decoder, prompts, stop, min(lanes, len(prompts)), seed).run(report)


class _Writer:
    def __init__(
        self, decoder: Decoder, prompts: Sequence[Prompt], stop: frozenset[int], count: int, seed: int
    ) -> None:
        self._decoder, self._prompts = decoder, prompts
        longest = max(len(prompt.tokens) + prompt.most for prompt in prompts) + 1
        self._length = -(-longest // _BUCKET) * _BUCKET
        self._lanes = Lanes(decoder, count, min(self._length, decoder.config.context_length))
        self._written: list[list[int]] = [[] for _ in prompts]
        self._instructions = Instructions(self._lanes, stop)
        rest = [len(prompt.tokens) - self._instructions.count(prompt.tokens) for prompt in prompts]
        # Prompts of like length follow each other: little padding when they are read together.
        self._waiting = deque(sorted(range(len(prompts)), key=rest.__getitem__))
        self._holds: list[int | None] = [None] * count
        device = decoder.device
        self._last = torch.zeros(count, dtype=torch.long, device=device)
        self._at = torch.zeros(count, dtype=torch.long, device=device)
        self._temperature = torch.zeros(count, device=device)
        self._draw = torch.Generator(device=device).manual_seed(seed)
        self._stop = stop

    @torch.no_grad()
    def run(self, report: Callable[[int], None]) -> list[list[int]]:
        finished = 0
        while True:
            free = [lane for lane, held in enumerate(self._holds) if held is None]
            if self._waiting and len(free) * _REFILL >= len(self._holds):
                finished += self._fill(free)
            elif len(free) == len(self._holds):
                return self._written
            finished += self._step()
            report(finished)

    def _fill(self, free: list[int]) -> int:
        """Read the next prompts into free lanes, and write the first token of each."""
        taken = [(lane, self._waiting.popleft()) for lane, _ in zip(free, range(len(self._waiting)), strict=False)]
        heads = [self._instructions.put(lane, self._prompts[n].tokens) for lane, n in taken]
        rest = [self._prompts[n].tokens[head:] for (_, n), head in zip(taken, heads, strict=True)]
        padded = padded_together(rest)
        device = self._decoder.device
        lanes = torch.tensor([lane for lane, _ in taken], device=device)
        starts = torch.tensor(heads, device=device)
        lengths = torch.tensor([len(self._prompts[n].tokens) for _, n in taken], device=device)
        seen = min(max(heads) + padded.shape[1], self._lanes.length)
        states = self._lanes.read(padded.to(device), starts, lanes, seen=seen)
        self._at[lanes] = lengths
        self._temperature[lanes] = torch.tensor([self._prompts[n].temperature for _, n in taken], device=device)
        for lane, n in taken:
            self._holds[lane] = n
        last = states[torch.arange(len(taken), device=device), lengths - starts - 1]
        self._last[lanes] = self._choose(last, self._temperature[lanes])
        return self._take(lanes.tolist())

    def _step(self) -> int:
        busy = [lane for lane, held in enumerate(self._holds) if held is not None]
        if not busy:
            return 0
        seen = -(-(int(self._at.max()) + 1) // _BUCKET) * _BUCKET
        states = self._lanes.read(self._last[:, None], self._at, seen=min(seen, self._lanes.length))
        self._last.copy_(self._choose(states[:, 0], self._temperature))
        self._at += 1
        self._at.clamp_(max=self._lanes.length - 1)  # idle lanes go nowhere
        return self._take(busy)

    def _choose(self, states: Tensor, temperature: Tensor) -> Tensor:
        drawing = temperature > 0
        values, tokens = likeliest(self._decoder, states, _LIKELY if bool(drawing.any()) else 1)
        chances = (values / temperature.clamp(min=1e-3)[:, None]).softmax(-1)
        drawn = torch.multinomial(chances, 1, generator=self._draw)[:, 0]
        return tokens.gather(1, torch.where(drawing, drawn, 0)[:, None])[:, 0]

    def _take(self, lanes: list[int]) -> int:
        """Note the newest token of each lane; how many texts it finished."""
        finished = 0
        newest = self._last.tolist()
        for lane in lanes:
            n = self._holds[lane]
            assert n is not None
            self._written[n].append(newest[lane])
            if newest[lane] in self._stop or len(self._written[n]) >= self._prompts[n].most:
                self._holds[lane] = None
                self._at[lane] = 0
                finished += 1
        return finished


def likeliest(decoder: Decoder, states: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest logits of each state [n, hidden], in order, and whose they are: [n, count] each."""
    weight = decoder.head_weight
    values = tokens = None
    for start in range(0, weight.shape[0], _HEAD_CHUNK):
        logits = torch.nn.functional.linear(states, weight[start : start + _HEAD_CHUNK]).float()
        top = logits.max(-1, keepdim=True) if count == 1 else logits.topk(min(count, logits.shape[1]))
        found = top.indices + start
        values = top.values if values is None else torch.cat((values, top.values), 1)
        tokens = found if tokens is None else torch.cat((tokens, found), 1)
    assert values is not None and tokens is not None
    best = values.topk(count)
    return best.values, tokens.gather(1, best.indices)
