"""Runs a draft head or a block drafter in plain torch for several conversations at once, with fixed shapes and without
waiting for the host: so a CUDA graph can capture its denoising steps with the forward pass before them. For any device.
`cpu/` has what drafts from the same files beside int8 weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from model.nn.block_drafter import NEAR, BlockDrafterWeights, denoise
from model.nn.draft_head import Drafted, DraftHeadWeights, normalize, read
from model.nn.linear import Embedding

MAX_RECURRENT_DRAFTS = 7
"""Drafts of a head that denoises nothing: as on a CPU (`MAX_HEAD_DRAFTS`)."""


class BatchDrafter:
    """Drafts tokens. A block is denoised once: with the bundled drafters a second step never pays.

    Args:
        scoring_rows: [n, size] float32, as `BlockQuantizedDraftHead` takes them.
        embedding: the base model's.
        device, dtype: of its weights, and of the features.

    Attributes:
        origin, acceptance, block: as in `BlockQuantizedDraftHead`.
        max_drafts: tokens that it drafts at most.
        matrices, vocabulary: as in `DraftHeadWeights`, on the device.
        block_tensors: as in `BlockDrafterWeights`; empty for a draft head.
        scoring_rows: on the device.
        mix: what the head has read and what was denoised count in each row of a block.
    """

    def __init__(
        self,
        weights: DraftHeadWeights | BlockDrafterWeights,
        scoring_rows: Tensor,
        embedding: Embedding,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        head = weights if isinstance(weights, DraftHeadWeights) else weights.head
        self.matrices = {name: part.to(device, dtype) for name, part in head.matrices.items() if name != "output"}
        self.vocabulary, self.scoring_rows = head.vocabulary.to(device), scoring_rows.to(device, dtype)
        self._embedding = embedding
        self.block_tensors: dict[str, Tensor] = {}
        self.mix: list[list[float]] = []
        self.origin: Literal["recurrent", "diffusion"] = "recurrent"
        self.block, self.max_drafts = 0, MAX_RECURRENT_DRAFTS
        self.acceptance: tuple[tuple[float, ...], ...] = (head.acceptance,)
        if isinstance(weights, BlockDrafterWeights):
            self.block_tensors = {name: part.to(device, dtype) for name, part in weights.tensors.items()}
            self.mix = weights.tensors["mix"].tolist()
            self.origin, self.block, self.max_drafts = "diffusion", weights.block, weights.block
            self.acceptance = weights.acceptance

    @property
    def nbytes(self) -> int:
        """Bytes of its weights, which a step reads once if it denoises a block."""
        return sum(part.nbytes for part in (*self.matrices.values(), *self.block_tensors.values(), self.scoring_rows))

    def draft_batch(self, features: Tensor, tokens: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Draft what follows the newest token of each conversation.

        Args:
            features: [n, features] of the rows that predicted these tokens.
            tokens: [n] int64.
            count: drafts of each.

        Returns:
            The drafts [n, count] int64, and the confidence in each [n, count] float32, provided that those before it
            are right.
        """
        context = self._context(features)
        state = self._read(context, tokens, None)
        return self._follow(context, state, count)

    @torch.inference_mode()
    def draft(
        self, features: Tensor, tokens: Sequence[int], more: Callable[[Sequence[float]], bool], steps: int = 1
    ) -> Drafted:
        """Draft what follows some tokens of one conversation; see `BlockQuantizedDraftHead.draft`. As many drafts as
        can be wanted are made together, because asking for each would wait for the device."""
        if not more(()):
            return Drafted()
        device, state = self.scoring_rows.device, None
        context = self._context(features[None].to(device, self.scoring_rows.dtype))
        for token in tokens:
            state = self._read(context, torch.tensor([token], device=device), state)
        assert state is not None, "at least one token is read"
        drafts, likely = (part[0].tolist() for part in self._follow(context, state, self.max_drafts))
        count = 1
        while count < len(drafts) and more(likely[:count]):
            count += 1
        return Drafted(tuple(drafts[:count]), tuple(likely[:count]))

    def _context(self, features: Tensor) -> Tensor:
        return normalize(features) @ self.matrices["features"].T

    def _read(self, context: Tensor, tokens: Tensor, state: Tensor | None) -> Tensor:
        return read(self.matrices, context, self._embedding(tokens), state)

    def _follow(self, context: Tensor, state: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """What follows a state [n, size], which is that after the newest token."""
        drafts, chances = list[Tensor](), list[Tensor]()
        likely = self._denoised(state, count) if self.block else None
        for number in range(count):
            if number:
                state = self._read(context, drafts[-1], state)
            scores = (state @ self.scoring_rows.T).float()
            if likely is not None:
                of_read, of_denoised = self.mix[number]
                near = likely[:, number] > -torch.inf
                scores = torch.where(near, of_denoised * likely[:, number] + of_read * scores, -torch.inf)
            best = scores.max(-1)
            drafts.append(self.vocabulary[best.indices])
            chances.append((best.values - scores.logsumexp(-1)).exp())
        return torch.stack(drafts, 1), torch.stack(chances, 1)

    def _denoised(self, state: Tensor, count: int) -> Tensor:
        """Logits of the first rows of a block [n, count, words] float32. Those far below the likeliest one are -∞."""
        logits = (denoise(self.block_tensors, state)[:, :count] @ self.scoring_rows.T).float()
        return torch.where(logits > logits.amax(-1, keepdim=True) - NEAR, logits, -torch.inf)
