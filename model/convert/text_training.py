"""Trainings on texts whose responses are the targets: what `rejoinder convert tune` and `convert programs` share.

All random choices of a step depend only on the seed and the step's number, so an interrupted training continues exactly
as it would have.
"""

from __future__ import annotations

import json
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear, pad

from model.checkpoint.gguf import BadModelFile
from model.convert.corpus import TrainingText
from model.convert.train_adapter import RATE_DECAY
from model.convert.train_draft_head import HeadTrainingProgress, rate_factor
from model.hub.store import write_atomically
from model.nn.adapter import Adapter
from model.nn.attention import additive_mask, attend
from model.nn.decoder import Decoder

_SAVE_EVERY_S = 120.0
"""Seconds between two checkpoints: the most that a crash may cost."""

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


class TextTraining(ABC):
    """A training, or its continuation if `state_file` exists.

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
        self._decoder, self._texts, self._config, self._state_file = decoder, texts, config, state_file
        self._purpose = json.dumps({"base": base, "data": data, **asdict(config)}, sort_keys=True)
        self._parameters = list(parameters)
        for parameter in self._parameters:
            parameter.requires_grad_()
        self._optimizer = torch.optim.AdamW(self._parameters, lr=config.rate, betas=(0.9, 0.95), weight_decay=0.0)
        self._epoch_steps = max(1, len(texts) // config.texts)
        self._steps = max(1, round(config.epochs * self._epoch_steps))
        self._step, self._seconds = 0, 0.0
        self._resume()

    @abstractmethod
    def _states(self, packed: PackedTexts) -> Tensor:
        """Run packed texts with what is trained: [n, hidden], ready for the head."""

    def run(
        self, on_progress: Callable[[HeadTrainingProgress], None], is_over: Callable[[], bool] = lambda: False
    ) -> bool:
        """Train, and save the state every two minutes and at the end.

        Args:
            is_over: asked before each step; if so, the training is saved and stops.

        Returns:
            Whether the training is finished.
        """
        saved_s = self._seconds
        while self._step < self._steps and not is_over():
            started = time.monotonic()
            loss = self._train_step()
            self._seconds += time.monotonic() - started
            on_progress(HeadTrainingProgress(self._step, self._steps, self._seconds, loss))
            if self._seconds - saved_s >= _SAVE_EVERY_S:
                self._save()
                saved_s = self._seconds
        self._save()
        return self._step == self._steps

    def _train_step(self) -> float:
        texts = self._select_texts()
        num_tokens = sum(end - begin for text in texts for begin, end in text.spans)
        loss = sum(self._accumulate(batch) for batch in _batches(texts)) / num_tokens
        for parameter in self._parameters:
            assert parameter.grad is not None
            parameter.grad /= num_tokens
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        for group in self._optimizer.param_groups:
            group["lr"] = self._config.rate * rate_factor(self._step / self._steps, *RATE_DECAY)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._step += 1
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

    def _save(self) -> None:
        state = {
            "purpose": self._purpose, "parameters": self._parameters, "optimizer": self._optimizer.state_dict(),
            "step": self._step, "seconds": self._seconds,
        }  # fmt: skip
        write_atomically(self._state_file, lambda partial: torch.save(state, partial))

    def _resume(self) -> None:
        if not self._state_file.exists():
            return
        try:
            state = torch.load(self._state_file, map_location=self._decoder.device, weights_only=True)
        except Exception as error:  # torch.load raises whatever unpickling raises
            raise BadModelFile(f"{self._state_file} cannot be read ({error}): remove it to start over") from None
        if state["purpose"] != self._purpose:
            raise BadModelFile(
                f"{self._state_file} is of a training with other conversations, settings or weights: choose another "
                "folder"
            )
        with torch.no_grad():
            for parameter, value in zip(self._parameters, state["parameters"], strict=True):
                parameter.copy_(value)
        self._optimizer.load_state_dict(state["optimizer"])
        self._step, self._seconds = int(state["step"]), float(state["seconds"])


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
