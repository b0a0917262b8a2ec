"""Runs a draft head or a block drafter in plain torch for several conversations at once, with fixed shapes and without
waiting for the host: so a CUDA graph can capture its denoising steps with the forward pass before them. For any device.
`cpu/` has what drafts from the same files beside int8 weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

from model.nn.block_drafter import CANDIDATES, NEAR, BlockDrafterWeights, denoise
from model.nn.draft_head import DraftHeadWeights, normalize, read
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
        self._matrices = {name: part.to(device, dtype) for name, part in head.matrices.items() if name != "output"}
        self._vocabulary, self._rows = head.vocabulary.to(device), scoring_rows.to(device, dtype)
        self._embedding = embedding
        self._block: dict[str, Tensor] = {}
        self.origin: Literal["recurrent", "diffusion"] = "recurrent"
        self.block, self.max_drafts = 0, MAX_RECURRENT_DRAFTS
        self.acceptance: tuple[tuple[float, ...], ...] = (head.acceptance,)
        if isinstance(weights, BlockDrafterWeights):
            self._block = {name: part.to(device, dtype) for name, part in weights.tensors.items()}
            self._mix: list[list[float]] = weights.tensors["mix"].tolist()
            self.origin, self.block, self.max_drafts = "diffusion", weights.block, weights.block
            self.acceptance = weights.acceptance

    @property
    def nbytes(self) -> int:
        """Bytes of its weights, which a step reads once if it denoises a block."""
        return sum(part.nbytes for part in (*self._matrices.values(), *self._block.values(), self._rows))

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
    ) -> tuple[tuple[int, ...], tuple[float, ...]]:
        """Draft what follows some tokens of one conversation; see `BlockQuantizedDraftHead.draft`. As many drafts as
        can be wanted are made together, because asking for each would wait for the device."""
        if not more(()):
            return (), ()
        device, state = self._rows.device, None
        context = self._context(features[None].to(device, self._rows.dtype))
        for token in tokens:
            state = self._read(context, torch.tensor([token], device=device), state)
        assert state is not None, "at least one token is read"
        drafts, likely = (part[0].tolist() for part in self._follow(context, state, self.max_drafts))
        count = 1
        while count < len(drafts) and more(likely[:count]):
            count += 1
        return tuple(drafts[:count]), tuple(likely[:count])

    def _context(self, features: Tensor) -> Tensor:
        return normalize(features) @ self._matrices["features"].T

    def _read(self, context: Tensor, tokens: Tensor, state: Tensor | None) -> Tensor:
        return read(self._matrices, context, self._embedding(tokens), state)

    def _follow(self, context: Tensor, state: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """What follows a state [n, size], which is that after the newest token."""
        drafts, chances = list[Tensor](), list[Tensor]()
        likely = self._denoised(state, count) if self.block else None
        for number in range(count):
            if number:
                state = self._read(context, drafts[-1], state)
            if likely is None:
                scores, places = (state @ self._rows.T).float(), None
            else:
                scores, places = self._compared(likely, number, state)
            best = scores.max(-1)
            index = best.indices if places is None else places.gather(1, best.indices[:, None])[:, 0]
            drafts.append(self._vocabulary[index])
            chances.append((best.values - scores.logsumexp(-1)).exp())
        return torch.stack(drafts, 1), torch.stack(chances, 1)

    def _denoised(self, state: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The likeliest candidates of the first rows of a block: their logits and places in the vocabulary
        [n, count, candidates]. Those far below the likeliest one have -∞."""
        logits = (denoise(self._block, state)[:, :count] @ self._rows.T).float()
        best = logits.topk(min(CANDIDATES, logits.shape[-1]))
        near = best.values > best.values[..., :1] - NEAR
        return torch.where(near, best.values, -torch.inf), best.indices

    def _compared(self, likely: tuple[Tensor, Tensor], number: int, state: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the candidates of a row, by what the head has read and what was denoised, and their places."""
        logits, places = (part[:, number] for part in likely)
        of_read, of_denoised = self._mix[number]
        by_state = (self._rows[places] @ state[:, :, None])[..., 0].float()
        return torch.where(logits > -torch.inf, of_denoised * logits + of_read * by_state, -torch.inf), places
