"""Logit bias and repetition penalties, as OpenAI's API defines them: each token's logit is changed by a given bias, and
lowered if the response has the token already.

A row that follows drafts is judged by the text before it, these drafts included. So the text is the same with and
without drafts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from model.decode.draft import Path
from model.decode.sampling import Sampling


class TokenBias:
    """What `logit_bias`, `frequency_penalty` and `presence_penalty` do to the logits of one response.

    A token that occurs c times in the response gets bias - c · frequency_penalty - (c > 0) · presence_penalty (OpenAI's
    API reference, "frequency and presence penalties"). The prompt does not count.
    """

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._counts = Counter[int]()
        self._changes: Tensor | None = None

    @property
    def active(self) -> bool:
        """Whether anything is changed."""
        return self._sampling.biased

    @torch.inference_mode()
    def apply(self, logits: Tensor, paths: Sequence[Path]) -> None:
        """Change logits in place.

        Args:
            logits: [rows, vocabulary]. Other rows than those of the paths are left alone.
            paths: what the step verifies.
        """
        if self._changes is None:
            self._changes = torch.zeros(logits.shape[-1], device=logits.device)
            for token in {*self._sampling.logit_bias, *self._counts}:
                self._changes[token] = self._change(token, self._counts[token])
        for path in paths:
            counts, changes = Counter[int](), self._changes.clone()
            for n, row in enumerate(path.rows):
                if n:
                    token = path.tokens[n - 1]
                    counts[token] += 1
                    changes[token] = self._change(token, self._counts[token] + counts[token])
                if n >= path.shared:
                    logits[row] += changes

    @torch.inference_mode()
    def commit(self, tokens: Sequence[int]) -> None:
        """Count tokens of the response."""
        self._counts.update(tokens)
        if self._changes is not None:
            for token in tokens:
                self._changes[token] = self._change(token, self._counts[token])

    def _change(self, token: int, count: int) -> float:
        """What is added to a token's logit where the response has it so often."""
        sampling = self._sampling
        penalty = count * sampling.frequency_penalty + (sampling.presence_penalty if count else 0.0)
        return sampling.logit_bias.get(token, 0.0) - penalty
