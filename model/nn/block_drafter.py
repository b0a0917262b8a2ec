"""The block drafter: a small diffusion model that denoises the tokens after the newest one together, in a few steps.

A draft head (`draft_head.py`) reads the tokens that are known, and its state s₀ predicts the first unknown one. The
tokens after that are masks, each a linear map of s₀ for its place. All rows attend to each other:

    x₀ = s₀;  xᵢ = Mᵢ s₀ + pᵢ
    x += W attention(A norm(x));  x += D swiglu(G norm(x))        for each layer
    tᵢ₊₁ = argmax head(O (aᵢ sᵢ + bᵢ norm(xᵢ)))

Tokens that are predicted together may contradict each other. So they are chosen one after the other: the head reads
each draft, and its state sᵢ after the first i of them is mixed with what was denoised. A row's likeliest candidates by
norm(xᵢ), which are scored for all rows at once, are compared; so a draft costs a fraction of what the head alone takes.
After a draft that is not confident, another step may mask what follows again, and denoise it from sᵢ.

Sources: DFlash (block diffusion on the base model's states, arXiv 2602.06036), discrete copula diffusion (denoised
marginals and an autoregressive model, arXiv 2410.01949), MDLM (masks, arXiv 2406.07524), Fast-dLLM (confident tokens
are kept, arXiv 2505.22618), recurrent drafter (arXiv 2403.09919).

File: a draft head's, with more matrices, and `places` [rows, size] and `mix` [rows, 2] float32. So it can be used as a
draft head, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, silu

from model.checkpoint.bound_file import load_bound_file, save_bound_file
from model.checkpoint.checkpoint import DecoderConfig
from model.checkpoint.gguf import BadModelFile
from model.nn.draft_head import DraftHeadWeights, drafts_of, load_draft_head, normalize
from model.nn.linear import quantize_rows

HEAD_SIZE, KV_SHARE = 64, 4
"""Size of an attention head, and queries that share keys and values."""

CONFIDENT, CANDIDATES, NEAR = 0.5, 64, 4.0
"""A step goes on after a draft that is at least this likely; how many tokens of a row are compared; and how far their
logits may be below the largest one."""

_FLOATS = ("places", "mix")
"""Tensors that are not quantized."""


@dataclass(frozen=True)
class BlockDrafterWeights:
    """A block drafter as it is stored.

    Attributes:
        head: reads the known tokens. Its metadata is the file's.
        tensors: as in `shapes`.
    """

    head: DraftHeadWeights
    tensors: dict[str, Tensor]

    @property
    def vocabulary(self) -> Tensor:
        """[n] int64, the tokens that it can draft."""
        return self.head.vocabulary

    @property
    def acceptance(self) -> tuple[tuple[float, ...], ...]:
        """How often the first, the first two, … drafts were all accepted on held-out text, after one step, two, …"""
        return tuple(map(tuple, json.loads(self.head.metadata.get("block_acceptance", "[[]]"))))

    @property
    def num_layers(self) -> int:
        """Layers."""
        return sum(name.startswith("heads") for name in self.tensors)

    @property
    def block(self) -> int:
        """Rows of a block, which drafts as many tokens."""
        return len(self.tensors["places"])

    def save(self, path: Path) -> None:
        """Write the drafter atomically."""
        stored = {"vocabulary": self.vocabulary.to(torch.int32)}
        stored |= {name: self.tensors[name].detach().float() for name in _FLOATS}
        for name, tensor in {**self.head.matrices, **self.tensors}.items():
            if name not in _FLOATS:
                stored[name], stored[f"{name}.scale"] = quantize_rows(tensor.detach().float())
        save_bound_file(path, stored, self.head.base, self.head.metadata)


def load_block_drafter(path: Path, config: DecoderConfig, base: str) -> BlockDrafterWeights:
    """Load a block drafter for a model; see `load_draft_head`. BadModelFile also if it is a draft head only."""
    head = load_draft_head(path, config, base)
    stored, _ = load_bound_file(path, "drafter", base=base)
    size = len(head.matrices["down"])
    try:
        rows, layers = len(stored["places"]), sum(f"heads{n}" in stored for n in range(len(stored)))
        expected = shapes(size, len(stored["gate_up0"]) // 2, layers, rows)
        tensors = {
            name: stored[name] if name in _FLOATS else stored[name].float() * stored[f"{name}.scale"][:, None]
            for name in expected
        }
    except (KeyError, RuntimeError, IndexError, TypeError) as error:
        raise BadModelFile(f"{path.name} is no block drafter, or is damaged ({error})") from None
    if {name: tuple(tensor.shape) for name, tensor in tensors.items()} != expected:
        raise BadModelFile(f"the drafter {path.name} has matrices that do not fit together")
    return BlockDrafterWeights(head, tensors)


def load_drafter(path: Path, config: DecoderConfig, base: str) -> DraftHeadWeights | BlockDrafterWeights:
    """Load what a file holds: a block drafter, or a draft head only. Raises BadModelFile."""
    return (load_block_drafter if drafts_of(path) == "diffusion" else load_draft_head)(path, config, base)


def shapes(size: int, inner: int, layers: int, rows: int) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor besides the head's: all M one below the other, the places p, a and b, and of each layer
    A (queries, keys and values), W, G and D."""
    each = {
        "attention": (size + 2 * size // KV_SHARE, size),
        "heads": (size, size),
        "gate_up": (2 * inner, size),
        "down": (size, inner),
    }
    return {
        "masks": ((rows - 1) * size, size),
        "places": (rows, size),
        "mix": (rows, 2),
        **{f"{name}{layer}": shape for layer in range(layers) for name, shape in each.items()},
    }


def denoise(tensors: Mapping[str, Tensor], state: Tensor) -> Tensor:
    """A step, in plain torch: for training, and what `cpu/block_drafter.py` computes.

    Args:
        tensors: as in `shapes`.
        state: [n, size], the head's after the last known token.

    Returns:
        [n, rows, size], norm(x).
    """
    size = state.shape[1]
    masks = (state @ matrix.T for matrix in tensors["masks"].view(-1, size, size))
    x = torch.stack((state, *masks), 1) + tensors["places"].to(state.dtype)
    layer = 0
    while f"heads{layer}" in tensors:
        both = normalize(x) @ tensors[f"attention{layer}"].T
        each = both.view(*both.shape[:2], -1, HEAD_SIZE).transpose(1, 2)  # [n, heads, rows, HEAD_SIZE]
        query, key, value = each.split_with_sizes([size // HEAD_SIZE, *[size // KV_SHARE // HEAD_SIZE] * 2], 1)
        mixed = scaled_dot_product_attention(query, key, value, enable_gqa=True)
        x = x + mixed.transpose(1, 2).flatten(2) @ tensors[f"heads{layer}"].T
        gate, up = (normalize(x) @ tensors[f"gate_up{layer}"].T).chunk(2, -1)
        x = x + (silu(gate) * up) @ tensors[f"down{layer}"].T
        layer += 1
    return normalize(x)
