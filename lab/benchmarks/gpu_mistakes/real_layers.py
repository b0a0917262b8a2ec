"""Parts of a real model at full width, for kernels in Triton's interpreter: a whole step would take it an hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from model.checkpoint.checkpoint import open_checkpoint
from model.engine.bundled import BUNDLED_DRAFT_HEADS, bundled
from model.engine.loader import output_rows
from model.nn.batch_drafter import BatchDrafter
from model.nn.block_drafter import BlockDrafterWeights, load_drafter
from model.nn.decoder import Decoder
from model.nn.gpu.block_matrix import BlockMatrix, BlockWeight
from model.nn.gpu.stored_weights import StoredHead, StoredLinear

_TOKENS = 1000
"""The last tokens of the vocabulary, which the head has: the interpreter takes a minute for all."""

_CPU = torch.device("cpu")


def real_layers(path: Path, layers: Sequence[int]) -> Decoder:
    """Some layers of a model, as a GPU loads them, and a part of its head."""
    checkpoint = open_checkpoint(path)
    checkpoint.config = replace(checkpoint.config, layers=max(layers) + 1)
    decoder = Decoder(checkpoint, _CPU, "stored")
    decoder.layers = [decoder.layers[number] for number in layers]
    assert all(isinstance(layer.gate_up, StoredLinear) for layer in decoder.layers)
    head = decoder.head
    assert isinstance(head, StoredHead)
    (whole,) = head.weight.sections
    low, high, words, factors = whole.planes
    part = BlockMatrix(
        whole.form,
        _TOKENS,
        whole.inputs,
        low[:, -_TOKENS:].contiguous(),
        None if high is None else high[:, -_TOKENS:].contiguous(),
        None if words is None else words[..., -_TOKENS:].contiguous(),
        factors[..., -_TOKENS:].contiguous(),
    )
    decoder.head = StoredHead(BlockWeight((part,), torch.bfloat16))
    decoder.config = replace(decoder.config, layers=len(layers), vocab_size=_TOKENS)
    return decoder


def real_drafter(path: Path) -> tuple[Decoder, BatchDrafter]:
    """A model without its layers, and its bundled block drafter.

    Raises:
        ValueError: none is bundled.
    """
    checkpoint = open_checkpoint(path)
    config = checkpoint.config
    weights = bundled(path, config, BUNDLED_DRAFT_HEADS, load_drafter)
    if not isinstance(weights, BlockDrafterWeights):
        raise ValueError(f"there is no block drafter for {path.name}")
    rows = output_rows(checkpoint, weights.vocabulary) @ weights.head.matrices["output"]
    checkpoint.config = replace(config, layers=1)
    decoder = Decoder(checkpoint, _CPU, "stored")
    decoder.config = config
    return decoder, BatchDrafter(weights, rows, decoder.embedding, _CPU, decoder.dtype)
