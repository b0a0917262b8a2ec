"""What a model takes of a GPU's memory, counted from the code on torch's `meta` device.

    python -m lab.benchmarks.gpu_memory

Not counted: CUDA's context and the kernels' code (some hundred MB), and what reading prompts needs for a moment.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lab.benchmarks.gpu_acceptance.recording import meta_adapter, meta_decoder, meta_drafter, recorded_step
from lab.benchmarks.gpu_acceptance.stored_weights import with_stored_weights
from lab.benchmarks.gpu_estimate import MODELS, Model, num_bytes
from model.engine.cuda_graph import slot_capacity
from model.nn.decoder import Decoder
from model.nn.gpu.operations import StepLayer

_RANK, _DRAFTS, _COPIES = 32, 4, 7

CONVERSATIONS, TOKENS = 64, 4096
"""Conversations of the largest step, and tokens that each may have."""


@dataclass(frozen=True)
class GpuMemory:
    """Bytes.

    Attributes:
        layers: weights of the layers.
        embedding: the embedding table.
        output: the output head.
        drafter: the block drafter.
        adapter: the adapter that drafts where there is no drafter.
        conversation: keys and values of a conversation of `TOKENS` tokens.
        workspace: results between the kernels of the largest step, which all graphs share.
        logits: those of the largest step that chooses tokens, with what its kernel needs beside them: masks, and random
            numbers.
    """

    layers: int
    embedding: int
    output: int
    drafter: int
    adapter: int
    conversation: int
    workspace: int
    logits: int

    def total(self, conversations: int) -> int:
        """With a drafter, and room for some conversations; one slot more is nobody's."""
        weights = self.layers + self.embedding + self.output + self.drafter
        return weights + self.workspace + self.logits + (conversations + 1) * self.conversation


def gpu_memory(model: Model, *, stored: bool = True) -> GpuMemory:
    """What a model takes.

    Args:
        stored: whether its weights are as its file stores them; otherwise in bfloat16.
    """
    config, dtype = model.config, torch.bfloat16
    decoder = meta_decoder(config, dtype)
    table: torch.Tensor = decoder.embedding.__self__  # type: ignore[attr-defined]
    if stored:
        decoder = with_stored_weights(decoder)
    head = meta_drafter(decoder)
    capacity = slot_capacity(TOKENS, _DRAFTS, _COPIES, branches=False)
    step, choosing = (
        recorded_step(decoder, _DRAFTS, CONVERSATIONS, head=head, context=TOKENS, choosing=choosing)
        for choosing in (False, True)
    )
    (choose,) = (launch for launch in choosing.launches if launch.name == "choose")
    return GpuMemory(
        _layers(decoder),
        table.nbytes,
        decoder.head.weight.nbytes,  # type: ignore[union-attr]
        head.nbytes,
        num_bytes(meta_adapter(config, dtype, _RANK, _DRAFTS).layers),
        2 * config.layers * config.kv_heads * capacity * config.head_dim * dtype.itemsize,
        step.workspace,
        num_bytes(choose.arguments),
    )


def _layers(decoder: Decoder) -> int:
    c = decoder.config
    heads = (c.heads * c.head_dim, c.kv_heads * c.head_dim, c.kv_heads * c.head_dim)
    return num_bytes([StepLayer.of(layer, heads, None) for layer in decoder.layers])


def main() -> None:
    """Print a table."""
    names = "model | layers | embeddings | output head | drafter | conversation | workspace | logits"
    print(f"| {names} | 1, {CONVERSATIONS} |\n|{'---|' * 9}")
    for model in MODELS:
        for kind, stored in (("stored", True), ("bfloat16", False)):
            m = gpu_memory(model, stored=stored)
            parts = (m.layers, m.embedding, m.output, m.drafter, m.conversation, m.workspace, m.logits)
            totals = ", ".join(f"{m.total(count) / 1e9:.2f} GB" for count in (1, CONVERSATIONS))
            print(f"| {model.name}, {kind} | {' | '.join(f'{part / 1e6:,.0f} MB' for part in parts)} | {totals} |")
        print(f"| {model.name}'s adapter in place of the drafter | {m.adapter / 1e6:,.0f} MB |")


if __name__ == "__main__":
    main()
