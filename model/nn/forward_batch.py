"""Inputs of a forward pass: the new tokens of every conversation in the batch, and prefill in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.checkpoint.architectures import Attention
from model.checkpoint.checkpoint import DecoderConfig
from model.nn.attention import text_mask
from model.nn.kv_cache import KeyValueCache

MASK = -1
"""Token id of a masked position. Its embedding is the adapter's own, or that of the model's mask token."""

PREFILL_CHUNK = 64
"""Prompt tokens per forward pass on a CPU. On two cores such a pass takes about as long as two or three single tokens.
That is the longest delay it adds to another conversation's next token."""

GPU_PREFILL_CHUNK = 1024
"""Prompt tokens per forward pass on a GPU. There starting the kernels takes longest: by estimate 1,024 tokens take the
1.5B 6 ms on an H100, and 64 tokens 5 ms."""


def prefill_chunk(device: torch.device) -> int:
    """Prompt tokens per forward pass."""
    return GPU_PREFILL_CHUNK if device.type == "cuda" else PREFILL_CHUNK


def feature_layers(config: DecoderConfig) -> tuple[int, ...]:
    """The layers whose states are features, besides the last one: a third and two thirds of all (EAGLE-3, arXiv
    2503.01840: the last state is specialized in the very next token)."""
    return tuple(sorted({max(1, config.layers // 3), max(1, 2 * config.layers // 3)}))


def num_features(config: DecoderConfig) -> int:
    """Features of a row (`ForwardInput.on_features`)."""
    return (len(feature_layers(config)) + 1) * config.hidden


class ForwardInterrupted(Exception):
    """A forward pass was interrupted between two layers. Nothing was committed, so it can be run again."""


Interruption = Callable[[], bool]
"""Asked before each layer: whether to interrupt the forward pass."""


@dataclass(frozen=True)
class ForwardInput:
    """The new tokens of one conversation in a forward pass, one row each.

    Attributes:
        cache: the conversation's key-value cache. Every row attends to all of it.
        tokens: an id per row, or MASK.
        positions: position of each row in the text.
        attention_mask: [rows, rows] bool, which new rows each row attends to.
        noise: whether each row goes through the adapter.
        num_outputs: the number of rows, counted from the end, to return logits for.
        return_hidden_states: return the normalized states of the last layer instead of logits.
        is_prefill: whether the rows are a chunk of a prompt. This includes its last chunk, which has outputs.
        on_features: receives what a draft head or a classifier reads of the rows with outputs (`num_features`),
            [num_outputs, features], before `Decoder.run` returns.
    """

    cache: KeyValueCache
    tokens: Sequence[int]
    positions: Sequence[int]
    attention_mask: Tensor
    noise: Sequence[bool]
    num_outputs: int
    return_hidden_states: bool = False
    is_prefill: bool = False
    on_features: Callable[[Tensor], None] | None = None


def text_input(
    cache: KeyValueCache,
    tokens: Sequence[int],
    num_outputs: int,
    attention: Attention = "causal",
    block: int = 1,
    *,
    return_hidden_states: bool = False,
) -> ForwardInput:
    """Input for plain text that follows the cached tokens.

    Args:
        block: block size of families with block attention.
    """
    count, past = len(tokens), len(cache.tokens)
    mask = text_mask(attention, count, past, block)[:, past:]
    return ForwardInput(
        cache, tokens, range(past, past + count), mask, [False] * count, num_outputs,
        return_hidden_states=return_hidden_states, is_prefill=num_outputs == 0,
    )  # fmt: skip


def prefill(
    cache: KeyValueCache,
    ids: Sequence[int],
    attention: Attention = "causal",
    block: int = 1,
    on_chunk: Callable[[], object] = lambda: None,
) -> Iterator[ForwardInput]:
    """Extend a cache to all of `ids`, one chunk per forward pass. The cached tokens must be a prefix of `ids`.

    Args:
        on_chunk: called after each chunk. It may add more of `ids` to the cache.
    """
    size = max(1, prefill_chunk(cache.device) // block) * block
    while len(cache.tokens) < len(ids):
        start = len(cache.tokens)
        chunk = ids[start : start + size]
        yield text_input(cache, chunk, 0, attention, block)
        cache.commit(chunk)
        on_chunk()
