"""The drafting adapter: low-rank deltas to the seven projections of every layer, and the embedding of masked positions.

The adapter is gated: only noise rows (masked positions to be drafted) go through it. Clean rows never do, so their
results are the base model's.

File: safetensors with `mask`, and `layers.N.PROJECTION.a` [rank, in] and `.b` [out, rank] for each projection, as int8
with one scale per row (`….a.scale`). The metadata names the checksum of the base model's weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from model.checkpoint.bound_file import load_bound_file, save_bound_file
from model.checkpoint.checkpoint import DecoderConfig
from model.checkpoint.gguf import BadModelFile
from model.nn.linear import quantize_rows

PROJECTIONS = ("q", "k", "v", "o", "gate", "up", "down")


def projection_shapes(config: DecoderConfig) -> dict[str, tuple[int, int]]:
    """Outputs and inputs of each projection."""
    c = config
    return {
        "q": (c.heads * c.head_dim, c.hidden),
        "k": (c.kv_heads * c.head_dim, c.hidden),
        "v": (c.kv_heads * c.head_dim, c.hidden),
        "o": (c.hidden, c.heads * c.head_dim),
        "gate": (c.intermediate, c.hidden),
        "up": (c.intermediate, c.hidden),
        "down": (c.hidden, c.intermediate),
    }


@dataclass(frozen=True)
class LowRank:
    """y += (x Aᵀ) Bᵀ. `a` is [rank, in], `b` is [out, rank] and includes the scale (LoRA, arXiv 2106.09685)."""

    a: Tensor
    b: Tensor


@dataclass(frozen=True)
class FusedLowRank:
    """The deltas of projections that share an input. Their A's are one matrix, which is faster for few rows."""

    a: Tensor
    b: tuple[Tensor, ...]

    @staticmethod
    def of(parts: list[LowRank]) -> FusedLowRank:
        """Fuse the deltas of projections with the same input."""
        return FusedLowRank(torch.cat([part.a for part in parts]), tuple(part.b for part in parts))

    def __call__(self, x: Tensor) -> Tensor:
        chunks = (x @ self.a.T).chunk(len(self.b), dim=-1)
        parts = [chunk @ b.T for chunk, b in zip(chunks, self.b, strict=True)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


_FUSED_GROUPS = ("q k v", "o", "gate up", "down")
"""Groups of projections that share an input."""


@dataclass(frozen=True)
class Adapter:
    """An adapter in memory.

    Attributes:
        mask: [hidden], the embedding of a masked position.
        layers: the delta of each projection, by layer and projection name.
        base: sha256 of the base model's weights.
        num_drafts: the number of consecutive drafts that it was trained for.
    """

    mask: Tensor
    layers: tuple[dict[str, LowRank], ...]
    base: str
    num_drafts: int
    metadata: dict[str, str]

    @property
    def acceptance(self) -> tuple[float, ...]:
        """How often the first, the first two, … drafts were all accepted on held-out text; empty if unknown."""
        return tuple(json.loads(self.metadata.get("slot_acceptance") or "null") or ())

    def delta(self, layer: int, names: str, x: Tensor) -> Tensor:
        """What a group of projections (`q k v`, `gate up`) adds for noise rows: [n, in] → [n, out]."""
        return self.fused(layer)[names](x)

    def fused(self, layer: int) -> Mapping[str, FusedLowRank]:
        """The deltas of a layer by group of projections: `q k v`, `o`, `gate up`, `down`."""
        return self._fused[layer]

    @cached_property
    def _fused(self) -> list[dict[str, FusedLowRank]]:
        return [
            {names: FusedLowRank.of([layer[name] for name in names.split()]) for names in _FUSED_GROUPS}
            for layer in self.layers
        ]

    def to(self, device: torch.device, dtype: torch.dtype) -> Adapter:
        """A copy on another device or in another dtype."""
        layers = tuple(
            {name: LowRank(low.a.to(device, dtype), low.b.to(device, dtype)) for name, low in layer.items()}
            for layer in self.layers
        )
        return Adapter(self.mask.to(device, dtype), layers, self.base, self.num_drafts, self.metadata)

    def save(self, path: Path) -> None:
        """Write the adapter atomically, with its matrices as int8."""
        tensors = {"mask": self.mask.to(torch.bfloat16)}
        for number, layer in enumerate(self.layers):
            for name, low in layer.items():
                for part, matrix in (("a", low.a), ("b", low.b)):
                    rows, scale = quantize_rows(matrix.float())
                    tensors[f"layers.{number}.{name}.{part}"] = rows
                    tensors[f"layers.{number}.{name}.{part}.scale"] = scale
        save_bound_file(path, tensors, self.base, {**self.metadata, "slots": str(self.num_drafts)})


def load_adapter(path: Path, config: DecoderConfig, base: str) -> Adapter:
    """Load an adapter for a model of this shape, whose weights have the sha256 `base`. Raises BadModelFile: it is
    missing, damaged, or was made for other weights."""
    tensors, metadata = load_bound_file(path, "adapter", "convert these weights, or run without an adapter", base=base)

    def matrix(name: str) -> Tensor:
        return tensors[name].float() * tensors[f"{name}.scale"][:, None]

    try:
        layers = tuple(
            {
                name: LowRank(matrix(f"layers.{number}.{name}.a"), matrix(f"layers.{number}.{name}.b"))
                for name in PROJECTIONS
            }
            for number in range(config.layers)
        )
        mask, num_drafts = tensors["mask"].float(), int(metadata["slots"])
    except (KeyError, ValueError) as error:
        raise BadModelFile(f"the adapter {path.name} is incomplete: it lacks {error}") from None
    except (RuntimeError, IndexError) as error:
        raise BadModelFile(f"the adapter {path.name} is damaged ({error}): download or train it again") from None
    ranks = {low.a.shape[0] for layer in layers for low in layer.values()}
    shapes = [{name: (low.b.shape[0], low.a.shape[1]) for name, low in layer.items()} for layer in layers]
    if mask.shape != (config.hidden,) or len(ranks) > 1 or any(one != projection_shapes(config) for one in shapes):
        raise BadModelFile(f"the adapter {path.name} has a different shape than the model")
    return Adapter(mask, layers, base, num_drafts, metadata)


def random_adapter(config: DecoderConfig, rank: int, num_drafts: int, seed: int, *, b_std: float = 0.05) -> Adapter:
    """An untrained adapter: the start of training (with `b_std` 0, so that deltas are zero), and drafts in tests.

    Args:
        b_std: standard deviation of the B matrices.
    """
    generator = torch.Generator().manual_seed(seed)
    layers = tuple(
        {
            name: LowRank(
                torch.randn(rank, columns, generator=generator) / columns**0.5,
                torch.randn(rows, rank, generator=generator) * b_std if b_std else torch.zeros(rows, rank),
            )
            for name, (rows, columns) in projection_shapes(config).items()
        }
        for _ in range(config.layers)
    )
    return Adapter(torch.randn(config.hidden, generator=generator) * 0.02, layers, "", num_drafts, {})
