"""Runs a block drafter on the worker team. Its layers are a decoder's, only smaller, so they run like one's: the rows
of a block in a forward pass of their own, in which every row attends to every other one. The matrices are in Q8_0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from model.checkpoint.checkpoint import DecoderConfig
from model.nn.block_drafter import CANDIDATES, CONFIDENT, HEAD_SIZE, KV_SHARE, NEAR, BlockDrafterWeights
from model.nn.cpu.block_formats import Floats
from model.nn.cpu.draft_head import BlockQuantizedDraftHead
from model.nn.cpu.forward_pass import ForwardPass
from model.nn.cpu.linear import BlockLinear, Operands
from model.nn.cpu.weights import quantized_linear
from model.nn.draft_head import Drafted
from model.nn.forward_batch import ForwardInput
from model.nn.kv_cache import KeyValueCache
from model.nn.layer import Layer
from model.nn.linear import Embedding, quantize_rows
from model.nn.rotary import RotaryEmbedding


class BlockQuantizedDrafter:
    """Drafts tokens for one conversation at a time. Arguments and attributes are those of `BlockQuantizedDraftHead`.

    Attributes:
        steps_taken: how many times it drafted in one denoising step, in two, …
    """

    origin: Literal["diffusion"] = "diffusion"

    def __init__(self, weights: BlockDrafterWeights, scoring_rows: Tensor, embedding: Embedding) -> None:
        t, size = weights.tensors, weights.tensors["places"].shape[1]
        self.acceptance, self.block = weights.acceptance, weights.block
        self.steps_taken = Counter[int]()
        self._head = BlockQuantizedDraftHead(weights.head, scoring_rows, embedding)
        rows, scale = quantize_rows(scoring_rows)
        self._rows, self._scale, self._mix = rows.numpy(), scale.numpy(), t["mix"].numpy()
        ones, heads = torch.ones(size), size // HEAD_SIZE
        layers = [
            Layer(
                ones, quantized_linear(t[f"attention{n}"]), None, quantized_linear(t[f"heads{n}"]),
                ones, quantized_linear(t[f"gate_up{n}"]), quantized_linear(t[f"down{n}"]),
            )
            for n in range(weights.num_layers)
        ]  # fmt: skip
        config = DecoderConfig(
            "drafter", "drafter", len(scoring_rows), size, len(layers), heads, heads // KV_SHARE, HEAD_SIZE,
            t["down0"].shape[1], self.block, float(np.finfo(np.float32).eps),
        )  # fmt: skip
        self._block = _Block(config, layers, self._head, quantized_linear(t["masks"]), t["places"].numpy())

    def draft(
        self, features: Tensor, tokens: Sequence[int], more: Callable[[Sequence[float]], bool], steps: int = 1
    ) -> Drafted:
        """Draft what follows some tokens in at most `steps` denoising steps; see `BlockQuantizedDraftHead`."""
        if not more(()):
            return Drafted()
        self._head.begin(features)
        for token in tokens:
            self._head.read(token)
        drafts, confidence, others = list[int](), list[float](), []
        logits, row, taken = self._block.run(), 0, 1
        while True:
            draft, chance, likely = self._choose(logits[row], *self._mix[row])
            drafts.append(draft)
            confidence.append(chance)
            others.append(likely)
            if len(drafts) == self.block or not more(confidence):
                self.steps_taken[taken] += 1
                return Drafted(tuple(drafts), tuple(confidence), tuple(others))
            self._head.read(draft)
            row += 1
            if chance < CONFIDENT and taken < steps:
                logits, row, taken = self._block.run(), 0, taken + 1

    def _choose(self, logits: Floats, read: float, denoised: float) -> tuple[int, float, tuple[tuple[int, float], ...]]:
        """The likeliest token after those that the head has read, its probability, and other likely ones with theirs.

        Args:
            logits: [vocabulary] of the row.
            read, denoised: how much the head's state counts, and how much the row's.
        """
        near = np.flatnonzero(logits > logits.max() - NEAR)  # quicker than sorting all of them
        if len(near) > CANDIDATES:
            near = near[np.argpartition(logits[near], -CANDIDATES)[-CANDIDATES:]]
        scores = denoised * logits[near] + self._scale[near] * (self._rows[near] @ (read * self._head.state[0]))
        return self._head.choose(scores, near)


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
        self._forward = ForwardPass(config, layers, torch.ones(size), (rows,))
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
        self._logits = np.zeros((rows, config.vocab_size), np.float32)
        scoring = head.scoring(self._forward.quantized_states, self._logits)
        self._jobs = np.concatenate((np.array([masks.job(self._operands)]), self._forward.jobs, scoring))

    def run(self) -> Floats:
        """A denoising step after the token that the head has read last: logits [rows, vocabulary] by norm(x). The next
        call overwrites them."""
        self._x[0] = self._head.state[0]
        self._product[:] = self._places
        self._head.team.run_all(self._jobs)
        return self._logits
