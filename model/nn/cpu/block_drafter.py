"""Runs a block drafter on the worker team. Its layers are a decoder's, only smaller, so they run like one's: the rows
of a block in a forward pass of their own, in which every row attends to every other one. The matrices are in Q8_0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.checkpoint.checkpoint import DecoderConfig
from model.nn.block_drafter import HEAD_SIZE, KV_SHARE, BlockDrafterWeights
from model.nn.cpu.draft_head import BlockQuantizedDraftHead, normalized
from model.nn.cpu.layers import BlockQuantizedLayers
from model.nn.cpu.row_kernels import Floats
from model.nn.cpu.weights import quantized_linear
from model.nn.forward_batch import ForwardInput
from model.nn.kv_cache import KeyValueCache
from model.nn.layer import Layer
from model.nn.linear import Embedding
from model.nn.rotary import RotaryEmbedding

CONFIDENT = 0.5
"""A prediction that is at least this likely is kept for the next step. So is the one after the known tokens."""


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
        self._head, self._embedding = BlockQuantizedDraftHead(weights.head, head_rows, embedding), embedding
        self._tokens = quantized_linear(weights.head.matrices["input"][:, : head_rows.shape[1]])
        self._masks, self._places = quantized_linear(t["masks"]), t["places"].numpy()
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
        self._layers = BlockQuantizedLayers(config, layers, ones)
        self._cache = KeyValueCache(config, torch.float32, torch.device("cpu"))
        self._cache.reserve(self.block)
        self._input = cache(self._new_input)

    def draft(
        self, features: Tensor, tokens: Sequence[int], more: Callable[[Sequence[float]], bool], steps: int = 1
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Draft what follows some tokens; see `decode.draft.DraftHead`."""
        if not more(()):
            return (), ()
        self._head.begin(features)
        for token in tokens:
            self._head.read(token)
        drafts, confidence = np.zeros(self.block, np.int64), np.zeros(self.block, np.float32)
        kept, known = np.zeros(self.block, np.bool_), 0
        for step in range(steps):
            states = self._states(drafts[known:-1], kept[known:-1])
            asked = np.flatnonzero(~kept[known:])
            drafts[known + asked], confidence[known + asked] = self._head.score(states[asked])
            kept = confidence >= CONFIDENT
            kept[: known + 1] = True
            if step + 1 == steps or kept.all():
                break
            while known < self.block - 1 and kept[known]:
                self._head.read(int(drafts[known]))
                known += 1
        chances = confidence.tolist()
        count = next((n for n in range(self.block) if not more(chances[:n])), self.block)
        return tuple(drafts[:count].tolist()), tuple(chances[:count])

    def _states(self, tokens: NDArray[np.int64], kept: NDArray[np.bool_]) -> Floats:
        """The states [rows, size] of a block after the known tokens, from which the rows' next tokens are predicted.

        Args:
            tokens: [rows - 1] of its rows after the first one.
            kept: which of them are no masks.
        """
        state, rows = self._head.state, len(tokens) + 1
        if rows == 1:
            return state.copy()
        x = np.concatenate(
            (state, self._masks(torch.from_numpy(state)).numpy().reshape(-1, state.shape[1])[: rows - 1])
        )
        if kept.any():
            embedded = self._embedding(torch.from_numpy(tokens[kept])).float().numpy()
            x[1:][kept] = self._tokens(torch.from_numpy(normalized(embedded))).numpy() + self._head.context
        x += self._places[:rows]
        inputs, rotary = self._input(rows)
        states, _ = self._layers.run(torch.from_numpy(x), [inputs], rotary, None)
        found: Floats = states.numpy()
        found[:1] = state
        return found

    def _new_input(self, rows: int) -> tuple[ForwardInput, RotaryEmbedding]:
        """The rows of a block, without rotations: their places are part of what they hold."""
        rotary = RotaryEmbedding(torch.ones(rows, 1, HEAD_SIZE), torch.zeros(rows, 1, HEAD_SIZE), None)
        mask = torch.ones(rows, rows, dtype=torch.bool)
        return ForwardInput(self._cache, [0] * rows, range(rows), mask, [False] * rows, 0), rotary
