"""`rejoinder convert tune`: trains low-rank updates of all projections (LoRA, arXiv 2106.09685) on your own
conversations. Only the assistant's tokens are trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from lab.convert.corpus import TrainingText
from lab.convert.text_training import PackedTexts, TextTraining, TextTrainingConfig, packed_states
from model.nn.adapter import PROJECTIONS, random_adapter
from model.nn.decoder import Decoder

_BLOCKS = {name: "self_attn" if name in ("q", "k", "v", "o") else "mlp" for name in PROJECTIONS}


@dataclass(frozen=True)
class TuningConfig(TextTrainingConfig):
    """How to train.

    Attributes:
        rank: rank of the updates.
    """

    rank: int = 16


class Tuning(TextTraining):
    """A training of low-rank updates."""

    def __init__(
        self,
        decoder: Decoder,
        texts: Sequence[TrainingText],
        base: str,
        data: str,
        config: TuningConfig,
        state_file: Path,
    ) -> None:
        initial = random_adapter(decoder.config, config.rank, 0, config.seed, b_std=0.0)
        self._adapter = initial.to(decoder.device, torch.float32)
        parameters = [part for layer in self._adapter.layers for low in layer.values() for part in (low.a, low.b)]
        super().__init__(decoder, parameters, texts, base, data, config, state_file)

    def updates(self) -> dict[str, tuple[Tensor, Tensor]]:
        """The updates b a of the projections' weights, by name: b [outputs, rank], a [rank, inputs], on the CPU."""
        return {
            f"layers.{number}.{_BLOCKS[name]}.{name}_proj.weight": (low.b.detach().cpu(), low.a.detach().cpu())
            for number, layer in enumerate(self._adapter.layers)
            for name, low in layer.items()
        }

    def _states(self, packed: PackedTexts) -> Tensor:
        adapter = self._adapter.to(self._decoder.device, self._decoder.dtype)
        return packed_states(self._decoder, packed, adapter)
