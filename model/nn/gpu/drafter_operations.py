"""The operations of a block drafter on a GPU beside those of a layer (`operations.py`), each of which is one kernel,
and what they compute in plain PyTorch. Sums are in float32, and results are rounded where a kernel stores them.
`triton_drafter.py` launches the kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from model.nn.block_drafter import HEAD_SIZE, KV_SHARE, NEAR

EPS = torch.finfo(torch.float32).eps
"""Of the drafter's normalizations, as `torch.nn.functional.rms_norm` has it."""


@dataclass(frozen=True)
class Scores:
    """Logits of the rows of blocks.

    Attributes:
        logits: [n × count, words] float32.
        highest: [n × count, tiles] float32, the largest one of each part of the vocabulary.
    """

    logits: Tensor
    highest: Tensor


@dataclass(frozen=True)
class Choice:
    """The likeliest word of each part of the vocabulary.

    Attributes:
        best: [n, tiles] float32, its score.
        index: [n, tiles] int32, its place in the vocabulary.
        weights: [n, tiles] float32, Σ exp(score - best) of the part.
    """

    best: Tensor
    index: Tensor
    weights: Tensor

    def word(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """The likeliest of some words [n], and its probability [n] float32."""
        best = self.best.max(-1, keepdim=True)
        total = (self.weights * (self.best - best.values).exp()).sum(-1)
        return words[self.index.gather(1, best.indices)[:, 0].long()], 1 / total


class DrafterOperations(Protocol):
    """The operations, for n conversations. `size` is that of the drafter's states."""

    def read_features(
        self,
        tapped: Sequence[Tensor],
        states: Tensor,
        rows: Tensor,
        norm: Tensor,
        eps: float,
        tokens: Tensor,
        slots: Tensor,
        table: Tensor,
        features: Tensor,
        inputs: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Context and input of a draft head.

        Args:
            tapped, states: [rows of a step, hidden] each, the states between layers (one or two) and after the last.
            rows: [n] int64, those that predicted the newest tokens.
            norm, eps: of the model's last normalization.
            tokens: [slots] int64, the newest tokens.
            slots: [n] int64.
            table: [vocabulary, hidden], embeddings.
            features: [size, (len(tapped) + 1) × hidden].
            inputs: [size, hidden + size].

        Returns:
            c and z = c + I [norm(embedding), 0] of `draft_head.py`, [n, size] each.
        """
        ...

    def attend_block(self, fused: Tensor, weight: Tensor, residual: Tensor, block: int) -> Tensor:
        """residual + W attention: [n × block, queries, keys and values] → [n × block, size]. All rows of a block attend
        to each other."""
        ...

    def score(self, x: Tensor, vocabulary: Tensor, block: int, count: int) -> Scores:
        """norm(x) Vᵀ of the first `count` rows of each block: [n × block, size], [words, size]."""
        ...

    def compare(
        self, scores: Scores, state: Tensor, vocabulary: Tensor, number: int, count: int, mix: tuple[float, float]
    ) -> Choice:
        """Choose draft `number`, by mix[0] × V norm(state) + mix[1] × logits, among words whose logit is less than
        `NEAR` below the largest one.

        Args:
            state: [n, size], not normalized.
        """
        ...

    def read_draft(
        self,
        choice: Choice,
        words: Tensor,
        table: Tensor,
        state: Tensor,
        context: Tensor,
        inputs: Tensor,
        drafts: Tensor,
        chances: Tensor,
        number: int,
    ) -> Tensor:
        """Write the draft and its probability to column `number` of `drafts` [n, count] int64 and `chances` [n, count]
        float32, and read it.

        Args:
            words: [words] int64, the tokens of the vocabulary.
            state: [n, size], not normalized, from before.

        Returns:
            z = c + I [norm(embedding), norm(state)], [n, size].
        """
        ...

    def store_drafts(
        self,
        choice: Choice,
        words: Tensor,
        drafts: Tensor,
        chances: Tensor,
        slots: Tensor,
        kept: Tensor,
        result: Tensor,
        unit: int,
    ) -> None:
        """Choose the last draft and store all: `DeviceState.set_drafts`.

        Args:
            kept: [slots, max_drafts] int64.
            result: [n, …] int64; its last 2 × max_drafts columns are drafts and probabilities × `unit`.
        """
        ...


class TorchDrafterOperations:
    """Implements `DrafterOperations` in plain PyTorch."""

    def read_features(
        self,
        tapped: Sequence[Tensor],
        states: Tensor,
        rows: Tensor,
        norm: Tensor,
        eps: float,
        tokens: Tensor,
        slots: Tensor,
        table: Tensor,
        features: Tensor,
        inputs: Tensor,
    ) -> tuple[Tensor, Tensor]:
        hidden, total, squares = states.shape[1], torch.zeros(()), torch.zeros(())
        for number, part in enumerate((*tapped, states)):
            values, own_eps = part[rows].float(), EPS if number < len(tapped) else eps
            factor = _scale(values, own_eps)
            values = values if number < len(tapped) else values * norm.float()
            matrix = features[:, number * hidden : (number + 1) * hidden].float()
            total = total + values.to(states.dtype).float() @ matrix.T * factor
            squares = squares + values.square().sum(-1, keepdim=True) * factor.square()
        context = total * (squares / features.shape[1] + EPS).rsqrt()
        z = context + _read(table[tokens[slots]], inputs[:, :hidden])
        return context.to(states.dtype), z.to(states.dtype)

    def attend_block(self, fused: Tensor, weight: Tensor, residual: Tensor, block: int) -> Tensor:
        size = len(weight)
        each = fused.float().view(-1, block, fused.shape[1] // HEAD_SIZE, HEAD_SIZE).transpose(1, 2)
        kv_heads = size // KV_SHARE // HEAD_SIZE
        query, key, value = each.split_with_sizes([size // HEAD_SIZE, kv_heads, kv_heads], 1)
        key, value = (part.repeat_interleave(KV_SHARE, 1) for part in (key, value))
        scores = query @ key.transpose(2, 3) * HEAD_SIZE**-0.5
        shares = (scores - scores.amax(-1, keepdim=True)).exp()
        mixed = shares.to(fused.dtype).float() @ value / shares.sum(-1, keepdim=True)
        mixed = mixed.transpose(1, 2).reshape(len(fused), size).to(fused.dtype)
        total: Tensor = residual.float() + mixed.float() @ weight.float().T
        return total.to(fused.dtype)

    def score(self, x: Tensor, vocabulary: Tensor, block: int, count: int) -> Scores:
        rows = x.view(-1, block, x.shape[1])[:, :count].flatten(0, 1)
        logits = _read(rows, vocabulary)
        return Scores(logits, logits.amax(-1, keepdim=True))

    def compare(
        self, scores: Scores, state: Tensor, vocabulary: Tensor, number: int, count: int, mix: tuple[float, float]
    ) -> Choice:
        logits = scores.logits.view(-1, count, len(vocabulary))[:, number]
        near = logits > scores.highest.amax(-1).view(-1, count)[:, number, None] - NEAR
        mixed = torch.where(near, mix[1] * logits + mix[0] * _read(state, vocabulary), -torch.inf)
        best = mixed.max(-1, keepdim=True)
        return Choice(best.values, best.indices.to(torch.int32), (mixed - best.values).exp().sum(-1, keepdim=True))

    def read_draft(
        self,
        choice: Choice,
        words: Tensor,
        table: Tensor,
        state: Tensor,
        context: Tensor,
        inputs: Tensor,
        drafts: Tensor,
        chances: Tensor,
        number: int,
    ) -> Tensor:
        drafts[:, number], chances[:, number] = choice.word(words)
        hidden = table.shape[1]
        z = context.float() + _read(table[drafts[:, number]], inputs[:, :hidden]) + _read(state, inputs[:, hidden:])
        return z.to(context.dtype)

    def store_drafts(
        self,
        choice: Choice,
        words: Tensor,
        drafts: Tensor,
        chances: Tensor,
        slots: Tensor,
        kept: Tensor,
        result: Tensor,
        unit: int,
    ) -> None:
        drafts[:, -1], chances[:, -1] = choice.word(words)
        missing = kept.shape[1] - drafts.shape[1]
        padded, likely = (torch.nn.functional.pad(part, (0, missing)) for part in (drafts, (chances * unit).long()))
        kept[slots] = padded
        result[:, -2 * kept.shape[1] :] = torch.cat((padded, likely), 1)


def _scale(x: Tensor, eps: float) -> Tensor:
    return (x.square().mean(-1, keepdim=True) + eps).rsqrt()


def _read(x: Tensor, matrix: Tensor) -> Tensor:
    """norm(x) Mᵀ in float32."""
    product: Tensor = x.float() @ matrix.float().T
    return product * _scale(x.float(), EPS)
