"""Rotary position embedding: the frequency of each pair of a head's dimensions, with long-context scaling."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from model.checkpoint.gguf import BadModelFile


@dataclass(frozen=True)
class RopeParameters:
    """Parameters of a model's rotary position embedding (RoFormer, arXiv 2104.09864, halves rotated).

    Attributes:
        frequencies: [head_dim / 2], radians per position.
        scale: factor of cos and sin (YaRN's attention factor).
        query_beta, query_period: queries at position p are multiplied by 1 + beta · ln(1 + ⌊p / period⌋) (Llama 4,
            Ministral 3); beta is 0 for other models.
    """

    frequencies: Tensor
    scale: float = 1.0
    query_beta: float = 0.0
    query_period: int = 1


def rotary_frequencies(theta: float, head_dim: int) -> Tensor:
    """theta^(-2i / head_dim) for each pair i. Raises ValueError if the dimensions are no pairs."""
    if head_dim % 2:
        raise ValueError(f"a head has {head_dim} dimensions, which is an odd number")
    return theta ** -(torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)


def rope_from_config(scaling: Mapping[str, Any], theta: float, head_dim: int, path: object) -> RopeParameters:
    """Read `rope_parameters` or `rope_scaling` of a `config.json`.

    Args:
        path: the checkpoint, for error messages.

    Raises:
        BadModelFile: the rope type is unknown, or a parameter is missing.
    """
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    frequencies = rotary_frequencies(theta, head_dim)
    try:
        if kind == "default":
            return RopeParameters(frequencies)
        if kind == "llama3":
            return RopeParameters(frequencies / _llama3_factors(frequencies, scaling))
        if kind == "yarn":
            return _yarn(frequencies, theta, head_dim, scaling)
    except KeyError as error:
        raise BadModelFile(f"{path} has rope type {kind!r} but lacks {error}") from None
    raise BadModelFile(f"{path} has rope type {kind!r}; supported are 'default', 'llama3' and 'yarn'")


def _llama3_factors(frequencies: Tensor, scaling: Mapping[str, Any]) -> Tensor:
    """Llama 3.1's scaling of low frequencies (transformers, modeling_rope_utils, `llama3`)."""
    wavelength = 2 * torch.pi / frequencies
    factor = float(scaling["factor"])
    low, high = float(scaling["low_freq_factor"]), float(scaling["high_freq_factor"])
    original = float(scaling["original_max_position_embeddings"])
    smooth = ((original / wavelength - low) / (high - low)).clamp(0, 1)
    return 1 / ((1 - smooth) / factor + smooth)


def _yarn(frequencies: Tensor, theta: float, head_dim: int, scaling: Mapping[str, Any]) -> RopeParameters:
    """YaRN (arXiv 2309.00071): low frequencies are divided by `factor`, high ones kept, with a ramp between."""
    factor, original = float(scaling["factor"]), int(scaling["original_max_position_embeddings"])

    def pair(rotations: float) -> float:
        """The pair of dimensions that makes this many rotations within the original context."""
        return head_dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair(float(scaling.get("beta_fast") or 32)), pair(float(scaling.get("beta_slow") or 1))
    if scaling.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    ramp = ((torch.arange(head_dim // 2) - low) / max(high - low, 0.001)).clamp(0, 1)
    return RopeParameters(
        frequencies * ((1 - ramp) + ramp / factor),
        _attention_factor(factor, scaling),
        float(scaling.get("llama_4_scaling_beta") or 0.0),
        original,
    )


def _attention_factor(factor: float, scaling: Mapping[str, Any]) -> float:
    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])

    def attention_scale(mscale: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1

    mscale, mscale_all_dim = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if mscale and mscale_all_dim:
        return attention_scale(float(mscale)) / attention_scale(float(mscale_all_dim))
    return attention_scale(1.0)
