"""The forward pass of a step in five kernels a layer, which read the number of earlier tokens on the device."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from model.nn.adapter import Adapter
from model.nn.decoder import Decoder
from model.nn.forward_batch import feature_layers
from model.nn.gpu.operations import Operations, Projection, StepLayer
from model.nn.step_pass import Predictions, RowPlaces, StepShape


class FusedPass:
    """Implements `StepPass` with `Operations`.

    Raises:
        ValueError: the weights are int8.
    """

    reads_length = True

    def __init__(
        self,
        decoder: Decoder,
        adapter: Adapter | None,
        shape: StepShape,
        operations: Operations,
        layers: Sequence[StepLayer] | None = None,
    ) -> None:
        config = decoder.config
        self._decoder, self.shape, self._operations = decoder, shape, operations
        heads = (config.heads * config.head_dim, config.kv_heads * config.head_dim, config.kv_heads * config.head_dim)
        self._head = Projection.of(decoder.head, (config.vocab_size,), None).weight
        self.layers = layers or [
            StepLayer.of(layer, heads, None if adapter is None else adapter.fused(number))
            for number, layer in enumerate(decoder.layers)
        ]

    def with_shape(self, shape: StepShape) -> FusedPass:
        return FusedPass(self._decoder, None, shape, self._operations, self.layers)

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
        """`bucket` and `places` have no effect."""
        decoder, do, shape = self._decoder, self._operations, self.shape
        first, eps = shape.first_draft, decoder.config.norm_eps
        taps = () if tapped is None else feature_layers(decoder.config)
        for number, layer in enumerate(self.layers):
            if tapped is not None and number in taps:
                tapped.append(x)
            keys, values = shape.keys_values[:, number]
            fused = do.project(x, layer.query_key_value, first, norm=layer.attention_norm, eps=eps)
            attended = do.attend(
                fused, positions, decoder.rotary, layer.head_norm, eps, keys, values, past_length, slots, shape
            )
            x = do.project(attended, layer.output, first, residual=x)
            inner = do.gate_up(x, layer.mlp_norm, layer.gate_up, first, eps)
            x = do.project(inner, layer.down, first, residual=x)
        return x

    def predict(self, states: Tensor) -> Predictions:
        decoder = self._decoder
        return Predictions(
            *self._operations.predict(states, decoder.norm, self._head, decoder.config.norm_eps, decoder.mask_token)
        )

    def logits(self, states: Tensor) -> Tensor:
        decoder, head = self._decoder, Projection(self._head, None, None, None, (len(self._head),))
        logits = self._operations.project(
            states, head, len(states), norm=decoder.norm, eps=decoder.config.norm_eps, dtype=torch.float32
        )
        if decoder.mask_token is not None:
            logits[:, decoder.mask_token] = -torch.inf
        return logits
