"""The forward pass of a whole step on the device: fixed shapes, keys and values in a slab, and no synchronization with
the host, so that a CUDA graph can capture it (`engine/cuda_graph.py`).

One interface for what runs the layers and the head. `MaskedPass` is plain torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from model.nn.adapter import Adapter
from model.nn.attention import additive_mask, batched_attend, static_cache_mask
from model.nn.decoder import Decoder
from model.nn.forward_batch import feature_layers
from model.nn.stacked import StackedAdapter


@dataclass(frozen=True)
class StepShape:
    """The rows of a step, and where they and all earlier ones keep their keys and values.

    Each conversation has equally many rows. The clean rows of all conversations come first and the rows for the adapter
    after them, so that the adapter runs on one slice.

    Attributes:
        keys_values: [2, layers, slots, kv_heads, capacity, head_dim]: row r of a conversation in slot s, after p
            tokens, is written to position p + r of s.
        attention_mask: [rows, rows] bool, which of its own rows each row of a conversation attends to. All attend to
            all earlier tokens.
        num_clean: the number of a conversation's rows that only see the base weights. They come before the others.
        batch: conversations.
    """

    keys_values: Tensor
    attention_mask: Tensor
    num_clean: int
    batch: int = 1

    @property
    def rows_each(self) -> int:
        """Rows of a conversation."""
        return len(self.attention_mask)

    @property
    def num_rows(self) -> int:
        """Rows of the step."""
        return self.batch * self.rows_each

    @property
    def first_draft(self) -> int:
        """The first row of the step that goes through the adapter."""
        return self.batch * self.num_clean

    @property
    def capacity(self) -> int:
        """Positions of a slot."""
        return self.keys_values.shape[4]

    @cached_property
    def order(self) -> Tensor:
        """[batch, rows_each] int64: which row of the step is row r of conversation b."""
        device, b = self.keys_values.device, torch.arange(self.batch)[:, None]
        clean = b * self.num_clean + torch.arange(self.num_clean)
        noise = self.rows_each - self.num_clean
        drafts = self.first_draft + b * noise + torch.arange(noise)
        return torch.cat((clean, drafts), 1).to(device)

    @cached_property
    def inverse_order(self) -> Tensor:
        """[num_rows] int64, b × rows_each + r for each row of the step."""
        return self.order.flatten().argsort()

    @cached_property
    def _conversation_and_row(self) -> tuple[Tensor, Tensor]:
        return self.inverse_order // self.rows_each, self.inverse_order % self.rows_each

    def places(self, past_length: Tensor, slots: Tensor) -> RowPlaces:
        """Where the rows are written, from the number of earlier tokens and the slot of each conversation."""
        conversation, row = self._conversation_and_row
        return RowPlaces(slots[conversation], past_length[conversation] + row)


@dataclass(frozen=True)
class RowPlaces:
    """Where the keys and values of rows are written.

    Attributes:
        slots, cells: [rows] int64, the slot and the position in it.
    """

    slots: Tensor
    cells: Tensor


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
    def shape(self) -> StepShape:
        """The rows of its steps."""
        ...

    @property
    def reads_length(self) -> bool:
        """Whether it reads the number of earlier tokens on the device, so that it does no work for the positions after
        them. Otherwise it covers `bucket` positions."""
        ...

    def with_shape(self, shape: StepShape) -> StepPass:
        """The pass for the steps of another shape, with the same weights."""
        ...

    def states(
        self,
        x: Tensor,
        positions: Tensor,
        past_length: Tensor,
        slots: Tensor,
        bucket: int,
        tapped: list[Tensor] | None = None,
        places: RowPlaces | None = None,
    ) -> Tensor:
        """Run the rows of a step through the layers.

        Args:
            x: [rows, hidden], their embeddings.
            positions: [rows] int64, their positions in the text.
            past_length: [batch] int64, the number of earlier tokens of each conversation.
            slots: [batch] int64, their slots. Several may be the last one, which belongs to nobody.
            bucket: the number of positions that are considered.
            tapped: gets the states [rows, hidden] that a draft head reads besides the last ones (`feature_layers`).
            places: where the rows are written, as `StepShape.places` says.

        Returns:
            [rows, hidden], not normalized.
        """
        ...

    def predict(self, states: Tensor) -> Predictions:
        """The most likely token of each row, from what `states` returns."""
        ...

    def logits(self, states: Tensor) -> Tensor:
        """All logits of each row: [rows, vocabulary] float32, new memory."""
        ...


class MaskedPass:
    """Plain torch: attention over a bucket of the slots, with a mask that is made once for all layers."""

    reads_length = False

    def __init__(
        self, decoder: Decoder, adapter: Adapter | None, shape: StepShape, stacked: StackedAdapter | None = None
    ) -> None:
        self._decoder, self.shape = decoder, shape
        self._adapter = stacked
        if stacked is None and adapter is not None:
            self._adapter = StackedAdapter(decoder.layers, adapter)

    def with_shape(self, shape: StepShape) -> MaskedPass:
        return MaskedPass(self._decoder, None, shape, self._adapter)

    def states(
        self,
        x: Tensor,
        positions: Tensor,
        past_length: Tensor,
        slots: Tensor,
        bucket: int,
        tapped: list[Tensor] | None = None,
        places: RowPlaces | None = None,
    ) -> Tensor:
        decoder, config, shape = self._decoder, self._decoder.config, self.shape
        kv_heads, capacity, head_dim = shape.keys_values.shape[3:]
        places = places or shape.places(past_length, slots)
        heads = torch.arange(kv_heads, device=x.device)
        cells = ((places.slots[:, None] * kv_heads + heads) * capacity + places.cells[:, None]).flatten()
        mask = additive_mask(
            static_cache_mask(past_length, shape.attention_mask, bucket),
            config.heads // config.kv_heads,
            decoder.dtype,
        )
        rotary = decoder.rotary.at(positions)
        layers = decoder.layers if self._adapter is None else self._adapter.layers
        noise = slice(shape.first_draft, shape.num_rows)
        taps = () if tapped is None else feature_layers(config)
        for number, layer in enumerate(layers):
            if tapped is not None and number in taps:
                tapped.append(x)
            keys, values = shape.keys_values[:, number]

            def attention(
                query: Tensor, key: Tensor, value: Tensor, keys: Tensor = keys, values: Tensor = values
            ) -> Tensor:
                for cache, new in ((keys, key), (values, value)):
                    cache.view(-1, head_dim).index_copy_(0, cells, new.reshape(-1, head_dim))
                query = query[None] if shape.batch == 1 else query[shape.order]
                keys, values = (cache[:, :, :bucket].index_select(0, slots) for cache in (keys, values))
                out = batched_attend(query, keys, values, mask).flatten(0, 1)
                return out if shape.batch == 1 else out[shape.inverse_order]

            hook = None if self._adapter is None else self._adapter.hook(number, noise)
            x = decoder.run_layer(layer, x, rotary, attention, hook)
        return x

    def logits(self, states: Tensor) -> Tensor:
        decoder = self._decoder
        logits = decoder.head(decoder.normalize(states, decoder.norm))
        if decoder.mask_token is not None:
            logits[:, decoder.mask_token] = -torch.inf
        return logits

    def predict(self, states: Tensor) -> Predictions:
        logits = self.logits(states)
        best = logits.max(-1)
        return Predictions(best.indices, (best.values - logits.logsumexp(-1)).exp())
