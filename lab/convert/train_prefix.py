"""`rejoinder convert programs`: trains the keys and values of a prompt's beginning (`TrainedPrefix`) for one task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import linear

from lab.convert.corpus import TrainingText
from lab.convert.text_training import PackedTexts, TextTraining, TextTrainingConfig, packed_states
from model.nn.attention import additive_mask, attend, causal_mask
from model.nn.decoder import Decoder
from model.nn.trained_prefix import TrainedPrefix


class PrefixTraining(TextTraining):
    """A training of a prefix, which begins as the keys and values of its tokens.

    Args:
        prefix: the tokens that all texts begin with.
        start: keys and values to begin with instead, which were trained before.

    Raises:
        ValueError: `start` stands for other tokens.
    """

    def __init__(
        self,
        decoder: Decoder,
        prefix: Sequence[int],
        texts: Sequence[TrainingText],
        base: str,
        data: str,
        config: TextTrainingConfig,
        state_file: Path,
        start: TrainedPrefix | None = None,
    ) -> None:
        self._prefix = tuple(prefix)
        if start is not None and start.tokens != self._prefix:
            raise ValueError("the prefix to begin with was trained for other instructions")
        keys, values = read_prefix(decoder, prefix)
        # The first token is what heads attend to that have nothing to look for: training it is unstable.
        self._first = keys[:, :, :1], values[:, :, :1]
        if start is not None:
            keys, values = start.keys.to(keys), start.values.to(values)
        self._rest = keys[:, :, 1:].contiguous(), values[:, :, 1:].contiguous()
        super().__init__(
            decoder, self._rest, [_after(text, self._prefix) for text in texts], base, data, config, state_file
        )

    def prefix(self, metadata: dict[str, str]) -> TrainedPrefix:
        """What has been trained."""
        keys, values = (tensor.detach().float().cpu() for tensor in self._whole())
        return TrainedPrefix(self._prefix, keys, values, metadata)

    def writes(self, text: TrainingText) -> bool:
        """Whether the model, as it is trained, would write the responses of a text, each after the one before."""
        packed = PackedTexts.of([_after(text, self._prefix)], self._decoder.device)
        states = self._states(packed)[packed.rows]
        return bool((linear(states, self._decoder.head_weight).argmax(-1) == packed.targets).all())

    def _whole(self) -> tuple[Tensor, Tensor]:
        keys, values = (torch.cat([one, other], 2) for one, other in zip(self._first, self._rest, strict=True))
        return keys, values

    def _states(self, packed: PackedTexts) -> Tensor:
        keys, values = (tensor.to(self._decoder.dtype) for tensor in self._whole())
        return packed_states(self._decoder, packed, prefix=list(zip(keys, values, strict=True)))


@torch.no_grad()
def read_prefix(decoder: Decoder, tokens: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The keys and values of a prompt's beginning: [layers, kv_heads, tokens, head_dim] float32 each."""
    config, ids = decoder.config, torch.tensor(tokens, device=decoder.device)
    mask = additive_mask(causal_mask(len(tokens), 0).to(decoder.device), config.heads // config.kv_heads, decoder.dtype)
    rotary, x = decoder.rotary.at(torch.arange(len(tokens), device=decoder.device)), decoder.embedding(ids)
    keys, values = [], []

    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        keys.append(key.transpose(0, 1))
        values.append(value.transpose(0, 1))
        return attend(query, keys[-1], values[-1], mask)

    for layer in decoder.layers:
        x = decoder.run_layer(layer, x, rotary, attention)
    return torch.stack(keys).float(), torch.stack(values).float()


def _after(text: TrainingText, prefix: tuple[int, ...]) -> TrainingText:
    """A text without its prefix."""
    if text.tokens[: len(prefix)] != prefix:
        raise ValueError("a text does not begin with the prefix")
    spans = tuple((begin - len(prefix), end - len(prefix)) for begin, end in text.spans)
    return TrainingText(text.tokens[len(prefix) :], spans, text.kind)


@torch.no_grad()
def share_right(training: PrefixTraining, texts: Sequence[TrainingText]) -> float:
    """The share of texts whose responses a training would write, word for word."""
    return sum(training.writes(text) for text in texts) / max(1, len(texts))
