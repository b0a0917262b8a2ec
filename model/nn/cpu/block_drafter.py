"""Runs a block drafter on the worker team. Its layers are a decoder's, only smaller, so they run like one's: the rows
of a block in a forward pass of their own, in which every row attends to every other one. The matrices are in Q8_0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.checkpoint.checkpoint import DecoderConfig
from model.nn.block_drafter import HEAD_SIZE, KV_SHARE, BlockDrafterWeights
from model.nn.cpu.draft_head import BlockQuantizedDraftHead, normalized
from model.nn.cpu.forward_pass import ForwardPass, LayerWeights
from model.nn.cpu.linear import BlockLinear, Operands
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
        drafts, confidence = np.zeros(self.block, np.int64), np.zeros(self.block, np.float32)
        kept, known = np.zeros(self.block, np.bool_), 0
        for step in range(steps):
            held = np.flatnonzero(kept[known:-1])
            logits = self._block.run(held + 1, self._rows(drafts[known + held]) if len(held) else None)
            asked = np.flatnonzero(~kept[known:])
            drafts[known + asked], confidence[known + asked] = self._head.choose(logits[asked])
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

    def _rows(self, tokens: NDArray[np.int64]) -> Floats:
        """What the rows of tokens that are kept hold: [n, size]."""
        embedded = normalized(self._embedding(torch.from_numpy(tokens)).float().numpy())
        held: Floats = self._tokens(torch.from_numpy(embedded)).numpy() + self._head.context
        return held


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
        self._masking = np.array([masks.job(self._operands)])
        self._masking_and_layers = np.concatenate((self._masking, self._forward.jobs))
        self._logits = np.zeros((rows, config.vocab_size), np.float32)
        self._scoring = head.scoring(self._forward.quantized_states, self._logits)

    def run(self, held: NDArray[np.int64], tokens: Floats | None) -> Floats:
        """A denoising step after the token that the head has read last: logits [rows, vocabulary] of the next token of
        each row. The result is overwritten by the next call.

        Args:
            held: which rows are tokens that were kept, and no masks.
            tokens: what those hold, [n, size].
        """
        self._x[0] = self._head.state[0]
        self._product[:] = self._places
        if tokens is None:
            self._head.team.run_all(self._masking_and_layers)
        else:
            self._head.team.run_all(self._masking)
            self._x[held] = tokens
            self._head.team.run_all(self._forward.jobs)
        self._forward.states[0] = self._head.state[0]
        self._forward.quantized_states.set_row(0, self._head.quantized_state)
        self._head.team.run_all(self._scoring)
        return self._logits
