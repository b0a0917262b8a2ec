"""Contexts beyond what a model was trained on, with YaRN, where the model's card describes it.

Qwen2.5 and Qwen3 are trained on 32,768 tokens. The cards of their larger models say how to reach 131,072: YaRN with a
factor of 4, for texts of any length (static). The smaller models have the same architecture, but their cards promise
32,768 tokens. Sources: the cards of Qwen2.5-7B-Instruct, Qwen2.5-Coder-7B-Instruct and Qwen3-8B; YaRN: arXiv
2309.00071.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from model.checkpoint.checkpoint import DecoderConfig


@dataclass(frozen=True)
class RopeScaling:
    """How the positions of a model are scaled.

    Attributes:
        factor: of the trained length.
        original: the length that the model was trained on, as its card says.
        promised: whether the card of this size describes it.
    """

    factor: float
    original: int
    promised: bool

    @property
    def context_length(self) -> int:
        """Tokens that the model spans with it."""
        return int(self.factor * self.original)

    def settings(self) -> dict[str, Any]:
        """As `rope_scaling` of a `config.json`."""
        return {"rope_type": "yarn", "factor": self.factor, "original_max_position_embeddings": self.original}


_PROMISED = {
    ("qwen2", 3584, 28), ("qwen2", 5120, 48), ("qwen2", 5120, 64), ("qwen2", 8192, 80),
    ("qwen3", 2560, 36), ("qwen3", 4096, 36), ("qwen3", 5120, 40), ("qwen3", 5120, 64),
}  # fmt: skip
"""Backbone, hidden size and layers of Qwen2.5 7B to 72B and Qwen3 4B to 32B."""

_NOT_PROMISED = {
    ("qwen2", 896, 24), ("qwen2", 1536, 28), ("qwen2", 2048, 36),
    ("qwen3", 1024, 28), ("qwen3", 2048, 28),
}  # fmt: skip
"""Qwen2.5 0.5B to 3B and Qwen3 0.6B and 1.7B."""

_FACTOR, _ORIGINAL = 4.0, 32_768


def scaling_for(config: DecoderConfig, context: int) -> RopeScaling | None:
    """The scaling that a context of this many tokens needs; None if it needs none, or if no card of its family has
    one."""
    size = config.backbone, config.hidden, config.layers
    longer = config.context_length < min(context, _FACTOR * _ORIGINAL)
    if config.diffusion is not None or not longer or size not in _PROMISED | _NOT_PROMISED:
        return None
    return RopeScaling(_FACTOR, _ORIGINAL, size in _PROMISED)
