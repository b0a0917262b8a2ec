"""Rotary positions: how fast each pair of a head's numbers turns, and what long-context models change about it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from model.gguf_file import BadModelFile


@dataclass(frozen=True)
class Rope:
    """The rotary positions of one model (RoFormer, arXiv 2104.09864, halves rotated).

    Attributes:
        frequency: [head_dim / 2], radians a position.
        scale: multiplies cos and sin (YaRN's attention factor).
        query_beta, query_period: queries at position p are multiplied by 1 + beta · ln(1 + ⌊p / period⌋) (Llama 4,
            Ministral 3); beta 0 for the others.
    """

    frequency: Tensor
    scale: float = 1.0
    query_beta: float = 0.0
    query_period: int = 1


def plain(theta: float, head_dim: int) -> Tensor:
    """theta^(-2i / head_dim) for each pair i."""
    return theta ** -(torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)


def from_settings(said: Mapping[str, Any], theta: float, head_dim: int, where: object) -> Rope:
    """What a `config.json` asks for in `rope_parameters` or `rope_scaling`.

    Raises:
        BadModelFile: a kind that is not known.
    """
    kind = said.get("rope_type") or said.get("type") or "default"
    frequency = plain(theta, head_dim)
    try:
        if kind == "default":
            return Rope(frequency)
        if kind == "llama3":
            return Rope(frequency / _llama3_factors(frequency, said))
        if kind == "yarn":
            return _yarn(frequency, theta, head_dim, said)
    except KeyError as error:
        raise BadModelFile(f"{where} asks for {kind!r} rotary positions without {error}") from None
    raise BadModelFile(f"{where} scales its rotary positions by {kind!r}; known are 'default', 'llama3' and 'yarn'")


def _llama3_factors(frequency: Tensor, said: Mapping[str, Any]) -> Tensor:
    """Llama 3.1's stretching of the slow frequencies (transformers, modeling_rope_utils, `llama3`)."""
    wavelength = 2 * torch.pi / frequency
    factor = float(said["factor"])
    low, high = float(said["low_freq_factor"]), float(said["high_freq_factor"])
    original = float(said["original_max_position_embeddings"])
    smooth = ((original / wavelength - low) / (high - low)).clamp(0, 1)
    return 1 / ((1 - smooth) / factor + smooth)


def _yarn(frequency: Tensor, theta: float, head_dim: int, said: Mapping[str, Any]) -> Rope:
    """YaRN (arXiv 2309.00071): slow pairs are stretched by `factor`, fast ones left alone, a ramp between them."""
    factor, original = float(said["factor"]), int(said["original_max_position_embeddings"])

    def pair(turns: float) -> float:
        """The pair that turns so often within the original context."""
        return head_dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = pair(float(said.get("beta_fast") or 32)), pair(float(said.get("beta_slow") or 1))
    if said.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    ramp = ((torch.arange(head_dim // 2) - low) / max(high - low, 0.001)).clamp(0, 1)
    return Rope(
        frequency * ((1 - ramp) + ramp / factor),
        _attention_factor(factor, said),
        float(said.get("llama_4_scaling_beta") or 0.0),
        original,
    )


def _attention_factor(factor: float, said: Mapping[str, Any]) -> float:
    if said.get("attention_factor") is not None:
        return float(said["attention_factor"])

    def grown(by: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * by * math.log(factor) + 1

    every, both = said.get("mscale"), said.get("mscale_all_dim")
    return grown(float(every)) / grown(float(both)) if every and both else grown(1.0)
