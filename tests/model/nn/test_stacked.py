"""A stacked adapter adds what the adapter adds, and the base weights stay in memory once."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

from model.checkpoint.checkpoint import open_checkpoint
from model.nn.adapter import random_adapter
from model.nn.decoder import Decoder, add_delta
from model.nn.layer import Layer
from model.nn.linear import FloatLinear
from model.nn.stacked import StackedAdapter

CPU = torch.device("cpu")
NOISE = slice(2, 5)


def _projections(layer: Layer) -> dict[str, FloatLinear]:
    found = {"q k v": layer.query_key_value, "o": layer.output, "gate up": layer.gate_up, "down": layer.down}
    return {name: linear for name, linear in found.items() if isinstance(linear, FloatLinear)}


def test_every_projection_gets_its_own_delta_in_noise_rows_only(tiny_qwen2: Path) -> None:
    decoder = Decoder(open_checkpoint(tiny_qwen2), CPU, "float32")
    adapter = random_adapter(decoder.config, 4, 3, seed=0)
    before = [{n: linear.weight.clone() for n, linear in _projections(layer).items()} for layer in decoder.layers]
    stacked = StackedAdapter(decoder.layers, adapter)
    for number, (base, layer) in enumerate(zip(decoder.layers, stacked.layers, strict=True)):
        gated = partial(add_delta, adapter, NOISE, number)
        for names, linear in _projections(base).items():
            assert torch.equal(linear.weight, before[number][names])
            x = torch.randn(7, linear.weight.shape[1])
            with torch.inference_mode():
                expected = gated(linear(x), names, x)
                found = stacked.hook(number, NOISE)(_projections(layer)[names](x), names, x)
                torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
                assert not torch.equal(found[NOISE], linear(x)[NOISE])
                torch.testing.assert_close(found[:2], linear(x)[:2], atol=1e-6, rtol=1e-6)


def test_the_base_weights_become_views_of_the_stacked_ones(tiny_qwen2: Path) -> None:
    decoder = Decoder(open_checkpoint(tiny_qwen2), CPU, "float32")
    stacked = StackedAdapter(decoder.layers, random_adapter(decoder.config, 4, 3, seed=0))
    for base, layer in zip(decoder.layers, stacked.layers, strict=True):
        for names, linear in _projections(base).items():
            assert linear.weight.data_ptr() == _projections(layer)[names].weight.data_ptr()


def test_int8_weights_cannot_be_stacked(tiny_qwen2: Path) -> None:
    decoder = Decoder(open_checkpoint(tiny_qwen2), CPU, "int8")
    with pytest.raises(ValueError, match="load them as bfloat16 or float32"):
        StackedAdapter(decoder.layers, random_adapter(decoder.config, 4, 3, seed=0))
