"""The formats in which the files of the two bundled models store their matrices, and models of that shape on torch's
`meta` device: for counting what a step reads, and for compiling its kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby

import torch
from torch import Tensor

from lab.benchmarks.gpu_acceptance.random_models import QWEN_05B, QWEN_15B
from model.checkpoint.checkpoint import DecoderConfig
from model.nn.adapter import projection_shapes
from model.nn.cpu.block_formats import FORMATS, BlockFormat
from model.nn.decoder import Decoder
from model.nn.gpu.block_matrix import PAIR, SUPER, BlockMatrix, BlockWeight
from model.nn.gpu.stored_weights import StoredHead, StoredLinear

_MORE_BITS = {
    QWEN_05B: (0, 1, 3, 6, 7, 8, 9, 10, 13, 16, 19, 21),
    QWEN_15B: (0, 1, 5, 6, 7, 8, 9, 10, 13, 16, 19, 21, 24, 27),
}
"""Layers that store `v` and `down` with more bits (Q4_K_M)."""


def stored_formats(config: DecoderConfig, layer: int) -> Mapping[str, BlockFormat]:
    """Formats of a layer's projections. K-quants need inputs in multiples of 256; others replace them elsewhere."""
    more = layer in _MORE_BITS[config]
    named = {}
    for name, (_, inputs) in projection_shapes(config).items():
        few, many = ("Q4_K", "Q6_K") if inputs % SUPER == 0 else ("Q5_0", "Q8_0")
        named[name] = FORMATS[many if more and name in ("v", "down") else few]
    return named


def head_format(config: DecoderConfig) -> BlockFormat:
    """The format of the output head."""
    return FORMATS["Q6_K" if config.hidden % SUPER == 0 else "Q8_0"]


def with_stored_weights(decoder: Decoder) -> Decoder:
    """A decoder on the meta device, with its weights in blocks."""
    config, shapes = decoder.config, projection_shapes(decoder.config)
    for number, layer in enumerate(decoder.layers):
        formats = stored_formats(config, number)

        def stored(*names: str, formats: Mapping[str, BlockFormat] = formats) -> BlockWeight:
            runs = groupby(names, key=formats.__getitem__)
            parts = [(form, sum(shapes[name][0] for name in run)) for form, run in runs]
            return BlockWeight(
                tuple(meta_matrix(form, outputs, shapes[names[0]][1]) for form, outputs in parts), decoder.dtype
            )

        decoder.layers[number] = replace(
            layer,
            query_key_value=StoredLinear(stored("q", "k", "v"), _bias(layer.query_key_value)),
            output=StoredLinear(stored("o")),
            gate_up=StoredLinear(stored("gate", "up")),
            down=StoredLinear(stored("down")),
        )
    decoder.head = StoredHead(
        BlockWeight((meta_matrix(head_format(config), config.vocab_size, config.hidden),), decoder.dtype)
    )
    return decoder


def _bias(linear: object) -> Tensor | None:
    bias: Tensor | None = getattr(linear, "bias", None)
    return bias


def meta_matrix(form: BlockFormat, outputs: int, inputs: int) -> BlockMatrix:
    """A matrix whose planes have shapes only."""

    def empty(first: int, second: int, kind: torch.dtype, third: int = outputs) -> Tensor:
        return torch.empty(first, second, third, dtype=kind, device="meta")

    pairs, supers = -(-inputs // PAIR), -(-inputs // SUPER)
    blocks = supers if form.layout.startswith("super") else 2 * pairs
    planes = {5: supers, 6: -(-inputs // (SUPER // 2))}.get(form.bits)
    words = {"super": 4, "super_min": 3}.get(form.layout)
    return BlockMatrix(
        form,
        outputs,
        inputs,
        empty(pairs * (2 if form.bits == 8 else 1), outputs, torch.uint8, 32),
        None if planes is None else empty(planes, outputs, torch.uint8, 32),
        None if words is None else empty(supers, words, torch.int32),
        empty(blocks, 2 if form.has_minimum else 1, torch.float16),
    )
