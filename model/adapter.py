"""The drafting adapter: a low-rank change to the seven projections of every layer, for noise rows only, and the
embedding that a masked position enters with. Clean rows never pass through it, so what they say is the base model's.

File: safetensors with `mask`, and `layers.N.PROJECTION.a` [rank, in] and `.b` [out, rank] for each, as int8 with a
scale a row (`….a.scale`); its metadata names the checksum of the weights it was trained for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.belonging import load_tensors, save_tensors
from model.gguf_file import BadModelFile
from model.linear import quantize_rows
from model.weights import DecoderConfig

_LEVELS = 127
"""Of a stored number, whatever the processor that wrote it multiplies."""

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
    """y += (x Aᵀ) Bᵀ: `a` is [rank, in], `b` is [out, rank] with the scale multiplied in (LoRA, arXiv 2106.09685)."""

    a: Tensor
    b: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        return (x @ self.a.T) @ self.b.T


@dataclass(frozen=True)
class Joined:
    """The changes of projections side by side: their A's are one product, which a pass with few rows is quicker for."""

    a: Tensor
    b: tuple[Tensor, ...]

    @staticmethod
    def of(parts: list[LowRank]) -> Joined:
        """Of projections of the same input."""
        return Joined(torch.cat([part.a for part in parts]), tuple(part.b for part in parts))

    def __call__(self, x: Tensor) -> Tensor:
        low = (x @ self.a.T).chunk(len(self.b), dim=-1)
        parts = [piece @ b.T for piece, b in zip(low, self.b, strict=True)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)


@dataclass(frozen=True)
class Rounded:
    """The same in the levels that the file has, for `kernels.add_low_rank`, which says what these are."""

    a: NDArray[np.int8]
    a_scale: NDArray[np.float32]
    b: NDArray[np.int8]
    b_scale: NDArray[np.float32]
    ends: NDArray[np.int64]

    @staticmethod
    def of(parts: list[LowRank]) -> Rounded:
        """Of projections of the same input."""
        a, a_scale = quantize_rows(torch.cat([part.a.detach() for part in parts]), _LEVELS)
        b, b_scale = quantize_rows(torch.cat([part.b.detach() for part in parts]), _LEVELS)
        ends = np.cumsum([len(part.b) for part in parts])
        return Rounded(a.numpy(), a_scale.numpy(), b.T.contiguous().numpy(), b_scale.numpy(), ends)


_TOGETHER = ("q k v", "o", "gate up", "down")
"""Projections that share an input."""


@dataclass(frozen=True)
class Adapter:
    """An adapter in memory.

    Attributes:
        mask: [hidden], what a masked position enters with.
        layers: the change to each projection, by layer and name.
        base: sha256 of the weights it belongs to.
        slots: how many drafts behind each other it was trained for.
        metadata: everything the file says about itself.
    """

    mask: Tensor
    layers: tuple[dict[str, LowRank], ...]
    base: str
    slots: int
    metadata: dict[str, str]

    @property
    def acceptance(self) -> tuple[float, ...]:
        """How often the first, the first two, … drafts were all accepted on held-out text; empty when not known."""
        return tuple(json.loads(self.metadata.get("slot_acceptance") or "null") or ())

    def change(self, layer: int, names: str, x: Tensor) -> Tensor:
        """What projections side by side (`q k v`, `gate up`) add for noise rows [n, in] → [n, out]."""
        return self._joined[layer][names](x)

    @cached_property
    def _joined(self) -> list[dict[str, Joined]]:
        return [{names: Joined.of(parts) for names, parts in side.items()} for side in self._side_by_side]

    @cached_property
    def rounded(self) -> list[dict[str, Rounded]]:
        """What `change` adds, by layer and projections side by side, for passes in int8."""
        return [{names: Rounded.of(parts) for names, parts in side.items()} for side in self._side_by_side]

    @property
    def _side_by_side(self) -> list[dict[str, list[LowRank]]]:
        return [{names: [layer[name] for name in names.split()] for names in _TOGETHER} for layer in self.layers]

    def to(self, device: torch.device, dtype: torch.dtype) -> Adapter:
        """The same adapter elsewhere."""
        layers = tuple(
            {name: LowRank(low.a.to(device, dtype), low.b.to(device, dtype)) for name, low in layer.items()}
            for layer in self.layers
        )
        return Adapter(self.mask.to(device, dtype), layers, self.base, self.slots, self.metadata)

    def save(self, path: Path) -> None:
        """Write it, its matrices as int8, atomically."""
        tensors = {"mask": self.mask.to(torch.bfloat16)}
        for number, layer in enumerate(self.layers):
            for name, low in layer.items():
                for part, matrix in (("a", low.a), ("b", low.b)):
                    rows, scale = quantize_rows(matrix.float(), _LEVELS)
                    tensors[f"layers.{number}.{name}.{part}"] = rows
                    tensors[f"layers.{number}.{name}.{part}.scale"] = scale
        save_tensors(path, tensors, self.base, {**self.metadata, "slots": str(self.slots)})


def load_adapter(path: Path, config: DecoderConfig, base: str) -> Adapter:
    """Open an adapter for a model.

    Args:
        config: the model's shape.
        base: sha256 of the model's weights.

    Raises:
        BadModelFile: missing, damaged, or made for other weights.
    """
    stored, metadata = load_tensors(path, "adapter", "convert these weights, or run without an adapter", base=base)

    def matrix(name: str) -> Tensor:
        return stored[name].float() * stored[f"{name}.scale"][:, None]

    try:
        layers = tuple(
            {
                name: LowRank(matrix(f"layers.{number}.{name}.a"), matrix(f"layers.{number}.{name}.b"))
                for name in PROJECTIONS
            }
            for number in range(config.layers)
        )
        mask, slots = stored["mask"].float(), int(metadata["slots"])
    except (KeyError, ValueError) as error:
        raise BadModelFile(f"the adapter {path.name} lacks {error}: it is not complete") from None
    except (RuntimeError, IndexError) as error:
        raise BadModelFile(f"the adapter {path.name} is damaged ({error}): fetch or make it again") from None
    ranks = {low.a.shape[0] for layer in layers for low in layer.values()}
    if mask.shape != (config.hidden,) or len(ranks) > 1:
        raise BadModelFile(f"the adapter {path.name} has another shape than the model")
    for layer in layers:
        for name, shape in projection_shapes(config).items():
            if (layer[name].b.shape[0], layer[name].a.shape[1]) != shape:
                raise BadModelFile(f"the adapter {path.name} has another shape than the model")
    return Adapter(mask, layers, base, slots, metadata)


def random_adapter(config: DecoderConfig, rank: int, slots: int, seed: int, *, spread: float = 0.05) -> Adapter:
    """An adapter that knows nothing: where training starts (with `spread` 0 for B), and what tests draft with."""
    draw = torch.Generator().manual_seed(seed)
    layers = tuple(
        {
            name: LowRank(
                torch.randn(rank, columns, generator=draw) / columns**0.5,
                torch.randn(rows, rank, generator=draw) * spread if spread else torch.zeros(rows, rank),
            )
            for name, (rows, columns) in projection_shapes(config).items()
        }
        for _ in range(config.layers)
    )
    return Adapter(torch.randn(config.hidden, generator=draw) * 0.02, layers, "", slots, {})
