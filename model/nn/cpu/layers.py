"""The layers of a decoder with block-quantized weights: runs forward passes (`forward_pass.py`), and applies the
adapter to their noise rows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from model.checkpoint.checkpoint import DecoderConfig
from model.nn.adapter import Adapter
from model.nn.cpu.block_formats import Indices
from model.nn.cpu.forward_pass import ForwardPass, Product
from model.nn.cpu.linear import block_linear
from model.nn.forward_batch import ForwardInput, ForwardInterrupted, Interruption
from model.nn.layer import Layer
from model.nn.rotary import RotaryEmbedding

_KEPT_ROWS, _KEPT = 32, 16
"""Forward passes of at most this many rows are kept for the next ones with the same numbers of rows, and how many.
Describing the jobs takes about 1 ms."""


class BlockQuantizedLayers:
    """The layers of a decoder.

    Args:
        layers: their weights, block-quantized.
        norm: [hidden] float32, for the states after the last layer.
        quantized_cache: whether the caches are int8.

    Attributes:
        team: runs them.
    """

    def __init__(
        self, config: DecoderConfig, layers: Sequence[Layer], norm: Tensor, *, quantized_cache: bool = False
    ) -> None:
        self._config, self._layers, self._norm, self._quantized_cache = config, layers, norm, quantized_cache
        self.team = block_linear(layers[0].down).team
        self._passes: OrderedDict[tuple[int, ...], ForwardPass] = OrderedDict()

    def run(
        self,
        x: Tensor,
        batch: Sequence[ForwardInput],
        rotary: RotaryEmbedding,
        adapter: Adapter | None,
        interruption: Interruption | None = None,
        taps: Sequence[int] = (),
    ) -> tuple[Tensor, list[Tensor]]:
        """Normalized states after the last layer [rows, hidden], and the states after each number of layers in `taps`.

        Args:
            x: [rows, hidden] float32, the embeddings of all rows.
            batch: the conversations of the rows; their caches must have reserved room.
            rotary: the rotations of their positions.
            interruption: asked before each layer.
            taps: ascending, each at least 1 and less than the number of layers.

        Raises:
            ForwardInterrupted: `interruption` demanded it.
        """
        tapped: list[Tensor] = []
        noise = np.flatnonzero([flag for part in batch for flag in part.noise])
        forward = self._forward_pass(tuple(len(part.tokens) for part in batch))
        forward.begin(x.numpy(), batch, rotary)
        stops: list[tuple[int, Callable[[], None]]] = []
        if adapter is not None and len(noise):
            stops += [(product.end, partial(_add_delta, adapter, noise, product)) for product in forward.products]
        if interruption is not None:
            stops += [(start, partial(_interrupt, interruption)) for start in forward.layer_starts]
        # The first job of a layer adds what the layer before it has computed.
        stops += [(forward.layer_starts[n] + 1, lambda: tapped.append(forward.residual())) for n in taps]
        done = 0
        for end, action in sorted(stops, key=lambda stop: stop[0]):
            self.team.run_all(forward.jobs[done:end])
            action()
            done = end
        self.team.run_all(forward.jobs[done:])
        return torch.from_numpy(forward.states.copy()), tapped

    def _forward_pass(self, sizes: tuple[int, ...]) -> ForwardPass:
        forward = self._passes.pop(sizes, None)
        if forward is None:
            forward = ForwardPass(self._config, self._layers, self._norm, sizes, quantized_cache=self._quantized_cache)
        if sum(sizes) <= _KEPT_ROWS:
            self._passes[sizes] = forward
            if len(self._passes) > _KEPT:
                self._passes.popitem(last=False)
        return forward


def _add_delta(adapter: Adapter, rows: Indices, product: Product) -> None:
    """Add the adapter's delta of some rows to a product."""
    x = torch.from_numpy(product.x[rows])
    product.out[rows] += adapter.delta(product.layer, product.names, x).numpy()


def _interrupt(interruption: Interruption) -> None:
    if interruption():
        raise ForwardInterrupted
