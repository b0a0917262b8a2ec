"""The forward pass of a step in six kernels a layer, which read the number of earlier tokens on the device."""

from __future__ import annotations

from torch import Tensor

from model.nn.adapter import Adapter
from model.nn.decoder import Decoder
from model.nn.gpu.operations import Operations, StepLayer
from model.nn.step_pass import Predictions, StepShape


class FusedPass:
    """Implements `StepPass` with `Operations`.

    Raises:
        ValueError: the weights are int8.
    """

    reads_length = True

    def __init__(self, decoder: Decoder, adapter: Adapter | None, shape: StepShape, operations: Operations) -> None:
        config = decoder.config
        self._decoder, self._shape, self._operations = decoder, shape, operations
        self._keys, self._values = ([*part] for part in shape.keys_values)
        heads = (config.heads * config.head_dim, config.kv_heads * config.head_dim, config.kv_heads * config.head_dim)
        self.layers = [
            StepLayer.of(layer, heads, None if adapter is None else adapter.fused(number))
            for number, layer in enumerate(decoder.layers)
        ]

    def run(self, x: Tensor, positions: Tensor, past_length: Tensor, bucket: int) -> Predictions:
        """`bucket` has no effect."""
        decoder, do, shape = self._decoder, self._operations, self._shape
        first, eps = shape.num_clean, decoder.config.norm_eps
        for layer, keys, values in zip(self.layers, self._keys, self._values, strict=True):
            fused = do.project(x, layer.query_key_value, first, norm=layer.attention_norm, eps=eps)
            query = do.rotate_and_store(
                fused, positions, past_length, decoder.rotary, layer.head_norm, eps, keys, values
            )
            attended = do.attend(query, keys, values, past_length, shape.attention_mask)
            x = do.project(attended, layer.output, first, residual=x)
            inner = do.gate_up(x, layer.mlp_norm, layer.gate_up, first, eps)
            x = do.project(inner, layer.down, first, residual=x)
        return Predictions(*do.predict(x, decoder.norm, decoder.head_weight, eps, decoder.mask_token))
