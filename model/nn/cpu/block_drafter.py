"""Runs a block drafter on the worker team. Its layers are a decoder's, only smaller, so they run like one's: the rows
of a block in a forward pass of their own, in which every row attends to every other one. The matrices are in Q8_0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.checkpoint.checkpoint import DecoderConfig
from model.nn.block_drafter import HEAD_SIZE, KV_SHARE, BlockDrafterWeights
from model.nn.cpu.draft_head import BlockQuantizedDraftHead
from model.nn.cpu.forward_pass import ForwardPass, LayerWeights
from model.nn.cpu.linear import BlockLinear, Operands
from model.nn.cpu.row_kernels import Floats
from model.nn.cpu.weights import quantized_linear
from model.nn.draft_head import normalize
from model.nn.forward_batch import ForwardInput
from model.nn.kv_cache import KeyValueCache
from model.nn.layer import Layer
from model.nn.linear import Embedding, quantize_rows
from model.nn.rotary import RotaryEmbedding

CONFIDENT = 0.5
"""A step goes on after a draft that is at least this likely, and ends after any other, unless it is the last step."""

_CANDIDATES = 64
"""Tokens among which a draft is chosen: nearly always one of them is the likeliest of all."""

_NEAR = 6.0
"""Candidates have logits at most this much below the largest one. Finding those first is quicker than sorting all."""


class BlockQuantizedDrafter:
    """Drafts tokens for one conversation at a time.

    Args:
        weights: the drafter.
        head_rows: [n, hidden] float32, the rows of the base model's output head for `weights.vocabulary`.
        embedding: the base model's token embeddings.

    Attributes:
        origin, acceptance, block: as in `decode.draft.DraftHead`.
    """

    origin: Literal["diffusion"] = "diffusion"

    def __init__(self, weights: BlockDrafterWeights, head_rows: Tensor, embedding: Embedding) -> None:
        t, size = weights.tensors, weights.tensors["places"].shape[1]
        self.acceptance, self.block = weights.acceptance, weights.block
        self._head = BlockQuantizedDraftHead(weights.head, head_rows, embedding)
        embedded = normalize(embedding(weights.vocabulary).float())
        self._rows, self._previous = (
            _Table.of(table) for table in (head_rows @ weights.head.matrices["output"], embedded @ t["previous"].T)
        )
        ones, heads = torch.ones(size), size // HEAD_SIZE
        layers = [
            Layer(
                ones, quantized_linear(t[f"attention{n}"]), None, quantized_linear(t[f"heads{n}"]),
                ones, quantized_linear(t[f"gate_up{n}"]), quantized_linear(t[f"down{n}"]),
            )
            for n in range(weights.num_layers)
        ]  # fmt: skip
        config = DecoderConfig(
            "drafter", "drafter", len(head_rows), size, len(layers), heads, heads // KV_SHARE, HEAD_SIZE,
            t["down0"].shape[1], self.block, float(np.finfo(np.float32).eps),
        )  # fmt: skip
        self._block = _Block(config, layers, self._head, quantized_linear(t["masks"]), t["places"].numpy())

    def draft(
        self, features: Tensor, tokens: Sequence[int], more: Callable[[Sequence[float]], bool], steps: int = 1
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Draft what follows some tokens; see `decode.draft.DraftHead`."""
        if not more(()):
            return (), ()
        self._head.begin(features)
        for token in tokens:
            self._head.read(token)
        drafts, confidence, index = list[int](), list[float](), 0
        for step in range(steps):
            logits, start, last = self._block.run(), len(drafts), step + 1 == steps
            for row in range(self.block - start):
                index, chance = self._head.choose(logits[0]) if row == 0 else self._choose(logits[row], index)
                drafts.append(self._head.token(index))
                confidence.append(chance)
                if len(drafts) == self.block or not more(confidence):
                    return tuple(drafts), tuple(confidence)
                if chance < CONFIDENT and not last:
                    break
            for token in drafts[start:]:
                self._head.read(token)
        return tuple(drafts), tuple(confidence)

    def _choose(self, logits: Floats, previous: int) -> tuple[int, float]:
        """The likeliest token of a row, as its place in the vocabulary, and its probability.

        Args:
            logits: [vocabulary] of the row.
            previous: place of the draft before it.
        """
        near = np.flatnonzero(logits > logits.max() - _NEAR)
        if len(near) > _CANDIDATES:
            near = near[np.argpartition(logits[near], -_CANDIDATES)[-_CANDIDATES:]]
        scores = logits[near] + self._rows[near] @ self._previous[previous]
        best = int(scores.argmax())
        return int(near[best]), float(1 / np.exp(scores - scores[best]).sum())


@dataclass(frozen=True)
class _Table:
    """Rows of int8 numbers, each with a scale, of which a few are used at a time."""

    numbers: NDArray[np.int8]
    scale: Floats

    @staticmethod
    def of(rows: Tensor) -> _Table:
        """A quantized table."""
        return _Table(*(part.numpy() for part in quantize_rows(rows)))

    def __getitem__(self, index: Any) -> Floats:
        """One row or several, as floats."""
        rows: Floats = self.numbers[index].astype(np.float32) * self.scale[index, ..., None]
        return rows


class _Block:
    """The rows of a block, and the jobs of a denoising step.

    Args:
        config: of the layers.
        head: reads the known tokens; its state is the first row.
        masks, places: M and p.
    """

    def __init__(
        self,
        config: DecoderConfig,
        layers: Sequence[Layer],
        head: BlockQuantizedDraftHead,
        masks: BlockLinear,
        places: Floats,
    ) -> None:
        rows, size = places.shape
        weights = [LayerWeights.of(layer) for layer in layers]
        self._norm = np.ones(size, np.float32)  # the jobs have its address only
        self._forward = ForwardPass(config, weights, self._norm, (rows,), head.team)
        self._cache = KeyValueCache(config, torch.float32, torch.device("cpu"))
        self._cache.reserve(rows)
        mask = torch.ones(rows, rows, dtype=torch.bool)
        inputs = ForwardInput(self._cache, [0] * rows, range(rows), mask, [False] * rows, 0)
        # Without rotations: the places are part of what the rows hold.
        rotary = RotaryEmbedding(torch.ones(rows, 1, HEAD_SIZE), torch.zeros(rows, 1, HEAD_SIZE), None)
        self._forward.begin(np.zeros((rows, size), np.float32), [inputs], rotary)
        self._head, self._places, self._linear = head, places, masks
        self._x, self._product = self._forward.first_inputs
        self._operands = Operands(head.quantized_state, self._x[1:].reshape(1, -1))
        self._denoising = np.concatenate((np.array([masks.job(self._operands)]), self._forward.jobs))
        self._logits = np.zeros((rows, config.vocab_size), np.float32)
        self._scoring = head.scoring(self._forward.quantized_states, self._logits)

    def run(self) -> Floats:
        """A denoising step after the token that the head has read last: logits [rows, vocabulary] of the next token of
        each row. The result is overwritten by the next call."""
        self._x[0] = self._head.state[0]
        self._product[:] = self._places
        self._head.team.run_all(self._denoising)
        self._forward.states[0] = self._head.state[0]
        self._forward.quantized_states.set_row(0, self._head.quantized_state)
        self._head.team.run_all(self._scoring)
        return self._logits
