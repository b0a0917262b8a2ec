"""Reads many texts that begin alike, and delivers what the model computes for their last rows: what classifiers are
trained on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from model.engine.loader import LoadedModel
from model.engine.request_classifier import classified_states
from model.nn.decoder import Decoder
from model.nn.forward_batch import ForwardInput, prefill, text_input
from model.nn.kv_cache import KeyValueCache

_ROWS = 256
"""Rows of a forward pass, at most."""


def last_states(
    model: LoadedModel,
    prompts: Sequence[list[int]],
    groups: Sequence[Hashable],
    on_progress: Callable[[float], None] = lambda done: None,
) -> Tensor:
    """The states (`classified_states`) of the last row of each prompt: [n, hidden] float32.

    Args:
        groups: of each prompt. What all prompts of a group begin with is read once.
        on_progress: called with the share of the prompts that were read.
    """
    members: dict[Hashable, list[int]] = {}
    for n, group in enumerate(groups):
        members.setdefault(group, []).append(n)
    states: dict[int, Tensor] = {}
    for numbers in members.values():
        own = [prompts[n] for n in numbers]
        start, most = model.decoder.new_cache(), min(map(len, own)) - 1
        count = min(most, next((n for n, tokens in enumerate(zip(*own, strict=False)) if len({*tokens}) > 1), most))
        for chunk in prefill(start, own[0][:count]):
            model.decoder.run([chunk])
        rows = read_after(model.decoder, start, ((ids[count:], 1) for ids in own))
        for n, (_, features) in zip(numbers, rows, strict=True):
            states[n] = classified_states(features[0], model.decoder.config.hidden)
            on_progress(len(states) / len(prompts))
    return torch.stack([states[n] for n in range(len(prompts))])


def read_after(
    decoder: Decoder, start: KeyValueCache, texts: Iterable[tuple[Sequence[int], int]]
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields the hidden states [outputs, hidden] and the features [outputs, features] of the last rows of each text.

    Args:
        start: what all texts follow.
        texts: the token ids of each, and its number of outputs.
    """
    caches: list[KeyValueCache] = []
    batch: list[ForwardInput] = []
    received: list[Tensor] = []

    def run() -> list[tuple[Tensor, Tensor]]:
        read = list(zip(decoder.run(batch), received, strict=True))
        batch.clear()
        received.clear()
        return read

    for ids, outputs in texts:
        if batch and sum(len(inputs.tokens) for inputs in batch) + len(ids) > _ROWS:
            yield from run()
        if len(batch) == len(caches):
            caches.append(start.fork())
        # Nothing is committed: the next forward pass overwrites what follows the common beginning.
        rows = text_input(caches[len(batch)], ids, outputs, return_hidden_states=True)
        batch.append(replace(rows, on_features=received.append))
    if batch:
        yield from run()
