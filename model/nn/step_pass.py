"""The forward pass of a whole step on the device: fixed shapes, keys and values in a static cache, and no
synchronization with the host, so that a CUDA graph can capture it (`engine/cuda_graph.py`).

One interface for what runs the layers and the head. `MaskedPass` is plain torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from model.nn.adapter import Adapter
from model.nn.attention import additive_mask, attend, static_cache_mask
from model.nn.decoder import Decoder
from model.nn.stacked import StackedAdapter


@dataclass(frozen=True)
class StepShape:
    """The rows of a step, and where they and all earlier ones keep their keys and values.

    Attributes:
        keys_values: [2, layers, kv_heads, capacity, head_dim]: row r of a step after p tokens is written to p + r.
        attention_mask: [rows, rows] bool, which rows of the step each row attends to. All attend to all earlier tokens.
        num_clean: the number of rows that only see the base weights. The rows after them go through the adapter.
    """

    keys_values: Tensor
    attention_mask: Tensor
    num_clean: int

    @property
    def num_rows(self) -> int:
        """Rows of the step."""
        return len(self.attention_mask)

    @property
    def capacity(self) -> int:
        """Positions of the cache."""
        return self.keys_values.shape[3]


@dataclass(frozen=True)
class Predictions:
    """What the rows of a step predict.

    Attributes:
        tokens: [rows] int64, the most likely token.
        confidence: [rows] float32, its probability.
    """

    tokens: Tensor
    confidence: Tensor


class StepPass(Protocol):
    """Runs the layers and the head."""

    @property
    def reads_length(self) -> bool:
        """Whether it reads the number of earlier tokens on the device, so that it does no work for the positions after
        them. Otherwise it covers `bucket` positions."""
        ...

    def run(self, x: Tensor, positions: Tensor, past_length: Tensor, bucket: int) -> Predictions:
        """Run the rows of a step.

        Args:
            x: [rows, hidden], their embeddings.
            positions: [rows] int64, their positions in the text.
            past_length: [1] int64, the number of earlier tokens.
            bucket: the number of cache positions that are considered.
        """
        ...


class MaskedPass:
    """Plain torch: attention over a bucket of the cache, with a mask that is made once for all layers."""

    reads_length = False

    def __init__(self, decoder: Decoder, adapter: Adapter | None, shape: StepShape) -> None:
        self._decoder, self._shape = decoder, shape
        self._keys, self._values = ([*part] for part in shape.keys_values)
        self._adapter = None
        if adapter is not None:
            self._adapter = StackedAdapter(decoder.layers, adapter, slice(shape.num_clean, shape.num_rows))

    def run(self, x: Tensor, positions: Tensor, past_length: Tensor, bucket: int) -> Predictions:
        decoder, config = self._decoder, self._decoder.config
        slots = past_length + torch.arange(self._shape.num_rows, device=x.device)
        mask = additive_mask(
            static_cache_mask(past_length, self._shape.attention_mask, bucket),
            config.heads // config.kv_heads,
            decoder.dtype,
        )
        rotary = decoder.rotary.at(positions)
        layers = decoder.layers if self._adapter is None else self._adapter.layers
        for number, layer in enumerate(layers):
            keys, values = self._keys[number], self._values[number]

            def attention(
                query: Tensor, key: Tensor, value: Tensor, keys: Tensor = keys, values: Tensor = values
            ) -> Tensor:
                keys.index_copy_(1, slots, key.transpose(0, 1))
                values.index_copy_(1, slots, value.transpose(0, 1))
                return attend(query, keys[:, :bucket], values[:, :bucket], mask)

            hook = None if self._adapter is None else self._adapter.hook(number)
            x = decoder.run_layer(layer, x, rotary, attention, hook)
        logits = decoder.head(decoder.normalize(x, decoder.norm))
        if decoder.mask_token is not None:
            logits[:, decoder.mask_token] = -torch.inf
        best = logits.max(-1)
        return Predictions(best.indices, (best.values - logits.logsumexp(-1)).exp())
