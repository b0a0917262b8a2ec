"""The operations in plain PyTorch: what the Triton kernels are compared with, and what runs where Triton is missing.

They compute in float32 from stored values and round where a kernel stores, so that a kernel differs by the order of its
sums alone.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad, silu

from model.nn.attention import static_cache_mask
from model.nn.gpu.operations import Projection, Weight
from model.nn.gpu.tiling import KEYS, POSITIONS
from model.nn.rotary import RotaryEmbedding, rotate
from model.nn.step_pass import StepShape


class TorchOperations:
    """Implements `Operations` on any device."""

    def project(
        self,
        x: Tensor,
        projection: Projection,
        first_draft: int,
        *,
        norm: Tensor | None = None,
        eps: float = 0.0,
        residual: Tensor | None = None,
        dtype: torch.dtype | None = None,
    ) -> Tensor:
        (*parts,) = _projected(x, projection, first_draft, norm, eps)
        out = torch.cat(parts, -1)
        return (out if residual is None else out + residual.float()).to(dtype or x.dtype)

    def gate_up(self, x: Tensor, norm: Tensor, projection: Projection, first_draft: int, eps: float) -> Tensor:
        gate, up = _projected(x, projection, first_draft, norm, eps)
        return (silu(gate) * up).to(x.dtype)

    def attend(
        self,
        fused: Tensor,
        positions: Tensor,
        rotary: RotaryEmbedding,
        head_norm: Tensor | None,
        eps: float,
        keys: Tensor,
        values: Tensor,
        past_length: Tensor,
        slots: Tensor,
        shape: StepShape,
    ) -> Tensor:
        rows, (_, kv_heads, capacity, size) = len(fused), keys.shape
        split = fused.view(rows, -1, size)
        query_key, value = split[:, :-kv_heads].float(), split[:, -kv_heads:]
        if head_norm is not None:
            query_key = torch.nn.functional.rms_norm(query_key, (size,), None, eps) * head_norm.float()
        at = rotary.at(positions)
        rotated = rotate(query_key, at.cos.float(), at.sin.float())
        query, key = rotated[:, :-kv_heads], rotated[:, -kv_heads:]
        if at.query_scale is not None:
            query = query * at.query_scale.float()
        places = shape.places(past_length, slots)
        keys[places.slots, :, places.cells] = key.to(keys.dtype)
        values[places.slots, :, places.cells] = value
        queries = query.to(fused.dtype)[shape.order].float().view(shape.batch, shape.rows_each, kv_heads, -1, size)
        mask = static_cache_mask(past_length, shape.attention_mask, capacity)[:, None, None]
        scores = torch.einsum("brkgd,bkcd->bkgrc", queries, keys[slots].float()) * size**-0.5
        scores = pad(scores.masked_fill(~mask, -torch.inf), (0, -capacity % POSITIONS), value=-torch.inf)
        # Shares are rounded relative to the largest score of the part so far, as they are where a kernel rounds them.
        tiles = scores.view(*scores.shape[:-1], -1, POSITIONS // KEYS, KEYS)
        highest = tiles.amax(-1, keepdim=True).cummax(-2).values
        shares = (tiles - highest.nan_to_num(neginf=0.0)).exp()
        weight = (highest - scores.amax(-1)[..., None, None, None]).exp()
        rounded = (shares.to(fused.dtype).float() * weight).flatten(-3)[..., :capacity]
        out = torch.einsum("bkgrc,bkcd->brkgd", rounded, values[slots].float())
        out /= (shares * weight).flatten(-3).sum(-1).permute(0, 3, 1, 2)[..., None]
        return out.reshape(rows, -1)[shape.inverse_order].to(fused.dtype)

    def predict(
        self, x: Tensor, norm: Tensor, weight: Weight, eps: float, excluded: int | None
    ) -> tuple[Tensor, Tensor]:
        (logits,) = _projected(x, Projection(weight, None, None, None, (len(weight),)), len(x), norm, eps)
        if excluded is not None:
            logits[:, excluded] = -torch.inf
        best = logits.max(-1)
        return best.indices, (best.values - logits.logsumexp(-1)).exp()


def _projected(
    x: Tensor, projection: Projection, first_draft: int, norm: Tensor | None, eps: float
) -> tuple[Tensor, ...]:
    """Each projection [rows, its columns] in float32. Rows are scaled after the products, which is the same."""
    values, scale = x.float(), torch.ones(len(x), 1, device=x.device)
    if norm is not None:
        scale = (values.square().mean(-1, keepdim=True) + eps).rsqrt()
        values = (values * norm.float()).to(x.dtype).float()
    weight = projection.weight if isinstance(projection.weight, Tensor) else projection.weight.expanded()
    parts = [*(values @ weight.float().T * scale).split_with_sizes(projection.sizes, -1)]
    if projection.bias is not None:
        biases = projection.bias.float().split_with_sizes(projection.sizes)
        parts = [part + bias for part, bias in zip(parts, biases, strict=True)]
    if projection.a is not None and projection.b is not None:
        lows = (values @ projection.a.float().T * scale).to(x.dtype).float().chunk(len(parts), -1)
        for part, low, b in zip(parts, lows, projection.b.split_with_sizes(projection.sizes), strict=True):
            part[first_draft:] += low[first_draft:] @ b.float().T
    return tuple(parts)
