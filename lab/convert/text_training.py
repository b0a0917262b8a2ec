"""Trainings on texts whose responses are the targets: what `rejoinder convert tune` and `convert programs` share."""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear, pad

from lab.convert.corpus import TrainingText
from lab.convert.training import Training
from model.nn.adapter import Adapter
from model.nn.attention import additive_mask, attend
from model.nn.decoder import Decoder

_BATCH_TOKENS = 256
"""Tokens of a forward pass, if no text is longer: masks are square, so more take longer."""

_LOGIT_ROWS = 256
"""Rows whose logits are computed at a time: logits are the largest tensors in memory."""


@dataclass(frozen=True)
class TextTrainingConfig:
    """How to train. Field names are keys of the saved state.

    Attributes:
        epochs: how often every text is trained on.
        seed: seed of the order of the texts, and of what is initialized at random.
        texts: texts per step of the optimizer.
        rate: peak learning rate.
    """

    epochs: float = 3.0
    seed: int = 1
    texts: int = 8
    rate: float = 5e-4


class TextTraining(Training):
    """A training on texts.

    Args:
        decoder: the base model, with float weights, which stay as they are.
        parameters: what is trained.
        texts: what to train on.
        base: sha256 of the base model's weights.
        data: identifies the texts; a state of others cannot be continued.

    Raises:
        BadModelFile: `state_file` belongs to another training, or is damaged.
        ValueError: the model is a diffusion model.
    """

    def __init__(
        self,
        decoder: Decoder,
        parameters: Sequence[Tensor],
        texts: Sequence[TrainingText],
        base: str,
        data: str,
        config: TextTrainingConfig,
        state_file: Path,
    ) -> None:
        if decoder.mask_token is not None:
            raise ValueError("diffusion models cannot be tuned: they do not predict one token after another")
        self._decoder, self._texts, self._config = decoder, texts, config
        self._epoch_steps = max(1, len(texts) // config.texts)
        steps = max(1, round(config.epochs * self._epoch_steps))
        super().__init__([(config.rate, parameters)], state_file, {"base": base, "text": data}, config, steps=steps)

    @abstractmethod
    def _states(self, packed: PackedTexts) -> Tensor:
        """Run packed texts with what is trained: [n, hidden], ready for the head."""

    def _add_gradients(self) -> float:
        texts = self._select_texts()
        num_tokens = sum(end - begin for text in texts for begin, end in text.spans)
        loss = sum(self._accumulate(batch) for batch in _batches(texts)) / num_tokens
        for parameter in self._parameters:
            assert parameter.grad is not None
            parameter.grad /= num_tokens
        return loss

    def _select_texts(self) -> list[TrainingText]:
        """The texts of this step: each epoch uses every text once, in a new order."""
        epoch, number = divmod(self._step, self._epoch_steps)
        draw = random.Random(f"{self._config.seed} {epoch}")
        return draw.sample(self._texts, len(self._texts))[number :: self._epoch_steps]

    def _accumulate(self, texts: Sequence[TrainingText]) -> float:
        """Add the gradient of the summed loss of some texts; returns that loss."""
        decoder = self._decoder
        packed = PackedTexts.of(texts, decoder.device)
        selected = self._states(packed)[packed.rows]
        gradient, loss = torch.zeros_like(selected), 0.0
        for start in range(0, len(selected), _LOGIT_ROWS):
            chunk = slice(start, start + _LOGIT_ROWS)
            part = selected[chunk].detach().requires_grad_()
            value = cross_entropy(linear(part, decoder.head_weight).float(), packed.targets[chunk], reduction="sum")
            (gradient[chunk],) = torch.autograd.grad(value, part)
            loss += float(value.detach())
        torch.autograd.backward([selected], [gradient])
        return loss


@dataclass(frozen=True)
class PackedTexts:
    """Texts in one sequence: what all begin with, which is mostly the instructions, once, and then the rest of each.

    Attributes:
        tokens, positions: [n] ids, and the position of each in its text.
        mask: [n, n] bool, which tokens each attends to: those before it in its text.
        rows: [m], those that predict the responses, and `targets` [m], what they should predict.
    """

    tokens: Tensor
    positions: Tensor
    mask: Tensor
    rows: Tensor
    targets: Tensor

    @staticmethod
    def of(texts: Sequence[TrainingText], device: torch.device) -> PackedTexts:
        """Pack texts."""
        shared = _shared_length(texts)
        tokens, positions, owners = [*texts[0].tokens[:shared]], [*range(shared)], [-1] * shared
        rows: list[int] = []
        for number, text in enumerate(texts):
            start = len(tokens) - shared
            tokens += text.tokens[shared:]
            positions += range(shared, len(text.tokens))
            owners += [number] * (len(text.tokens) - shared)
            rows += [start + n - 1 for begin, end in text.spans for n in range(begin, end)]
        ids, position, owner, row = (
            torch.tensor(values, device=device) for values in (tokens, positions, owners, rows)
        )
        mask = ((owner == owner[:, None]) | (owner < 0)).tril_()
        return PackedTexts(ids, position, mask, row, ids[row + 1])


def _shared_length(texts: Sequence[TrainingText]) -> int:
    """Tokens that all texts begin with, without the one that predicts a first response."""
    longest = min(text.spans[0][0] for text in texts) - 1
    first = texts[0].tokens
    return next((n for n in range(longest) if any(text.tokens[n] != first[n] for text in texts)), longest)


def _batches(texts: Sequence[TrainingText]) -> Iterator[list[TrainingText]]:
    """As many texts as a forward pass has room for."""
    shared, batch, size = _shared_length(texts), list[TrainingText](), 0
    for text in texts:
        if batch and size + len(text.tokens) > _BATCH_TOKENS:
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text.tokens) - shared
    yield batch


def packed_states(
    decoder: Decoder,
    packed: PackedTexts,
    adapter: Adapter | None = None,
    prefix: Sequence[tuple[Tensor, Tensor]] = (),
) -> Tensor:
    """Run packed texts: [n, hidden], ready for the head.

    Args:
        adapter: low-rank updates of the projections.
        prefix: for each layer the keys and the values of what precedes all texts: [kv_heads, tokens, head_dim] each.
    """
    config, past = decoder.config, prefix[0][0].shape[1] if prefix else 0
    mask = additive_mask(pad(packed.mask, (past, 0), value=True), config.heads // config.kv_heads, decoder.dtype)
    rotary = decoder.rotary.at(packed.positions + past)
    x = decoder.embedding(packed.tokens)
    for number, layer in enumerate(decoder.layers):

        def attention(query: Tensor, key: Tensor, value: Tensor, number: int = number) -> Tensor:
            pair = key.transpose(0, 1), value.transpose(0, 1)
            if prefix:
                pair = torch.cat([prefix[number][0], pair[0]], 1), torch.cat([prefix[number][1], pair[1]], 1)
            return attend(query, *pair, mask)

        def add_delta(out: Tensor, names: str, inner: Tensor, number: int = number) -> Tensor:
            return out if adapter is None else out + adapter.delta(number, names, inner)

        x = decoder.run_layer(layer, x, rotary, attention, add_delta)
    return decoder.normalize(x, decoder.norm)
