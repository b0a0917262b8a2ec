"""Runs a draft head on the worker team: reading a token and scoring what follows is one list of jobs.

The matrices are quantized to Q8_0. The product of the output head and O is one matrix [vocabulary, size], so that
drafting reads fewer weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from model.nn.cpu.block_formats import Floats
from model.nn.cpu.forward_pass import KernelJobs
from model.nn.cpu.jobs import Table
from model.nn.cpu.linear import QuantizedActivations
from model.nn.cpu.weights import quantized_linear
from model.nn.draft_head import Drafted, DraftHeadWeights
from model.nn.linear import Embedding

_KEPT_EMBEDDINGS = 2048
"""Embeddings that are kept: looking one up takes about as long as the matrices that read it."""

_OTHERS, _OTHER_CHANCE = 3, 0.05
"""How many other tokens are named in the place of a draft, and how likely each must be at least."""

_EPS = float(np.finfo(np.float32).eps)
"""Of the normalization, as in `torch.nn.functional.rms_norm`."""


class BlockQuantizedDraftHead:
    """Drafts tokens for one conversation at a time.

    Args:
        scoring_rows: [n, size] float32, the rows of the base model's output head for `weights.vocabulary`, multiplied
            by O.

    Attributes:
        origin: of its drafts.
        acceptance: how often the first, the first two, … drafts are all accepted: after one denoising step, two, …; one
            entry, as this drafts one token after another.
        block: how many tokens are denoised together: none.
        context: F norm(features), [1, size].
        state, quantized_state: [1, size], after the token that was read last.
        team: runs it.
    """

    origin: Literal["recurrent"] = "recurrent"
    block = 0

    def __init__(self, weights: DraftHeadWeights, scoring_rows: Tensor, embedding: Embedding) -> None:
        m = weights.matrices
        self.acceptance = (weights.acceptance,)
        self._vocabulary = weights.vocabulary.numpy()

        def embed(token: int) -> Floats:
            return normalized(embedding(torch.tensor([token])).float().numpy()[0])

        self._embed = lru_cache(_KEPT_EMBEDDINGS)(embed)
        self._hidden, (size, inner) = len(m["output"]), m["down"].shape
        first, read, gate_up, down = ([quantized_linear(m[name])] for name in ("features", "input", "gate_up", "down"))
        self._linear = quantized_linear(scoring_rows)
        self.team = self._linear.team
        self._features, self._input = _row(m["features"].shape[1]), _row(self._hidden + size)
        self.context, self._x, self._product, self._normal = (_row(size) for _ in range(4))
        self._both, self._inner, self._logits = _row(2 * inner), _row(inner), _row(len(self._vocabulary))
        self.state = self._input[:, self._hidden :]
        jobs = self._jobs = KernelJobs(self.team)
        zeros, ones = np.zeros(max(size, 2 * inner), np.float32), np.ones(size, np.float32)
        eps = np.array([_EPS], np.float32)
        jobs.kept += [first, read, gate_up, down, zeros, ones, eps]
        features, both = (QuantizedActivations(1, x.shape[1]) for x in (self._features, self._input))
        narrow, wide, self.quantized_state = (QuantizedActivations(1, n) for n in (size, inner, size))

        def normalize(to: Floats, quantized: QuantizedActivations) -> Table:
            """x += product; to = norm(x), also quantized."""
            return jobs.normalize(self._x, self._product, [zeros], [ones], eps, to, quantized)

        self._read_context = np.concatenate(
            (jobs.quantize(self._features, features), jobs.multiply(first, features, self.context))
        )
        self._read = np.concatenate((
            jobs.quantize(self._input, both),
            jobs.multiply(read, both, self._product),
            normalize(self._normal, narrow),
            jobs.multiply(gate_up, narrow, self._both),
            jobs.swiglu(self._both, [zeros], self._inner, wide),
            jobs.multiply(down, wide, self._product),
            normalize(self.state, self.quantized_state),
        ))  # fmt: skip
        self._read_and_score = np.concatenate((self._read, self.scoring(self.quantized_state, self._logits)))

    def draft(
        self, features: Tensor, tokens: Sequence[int], more: Callable[[Sequence[float]], bool], steps: int = 1
    ) -> Drafted:
        """Draft what follows some tokens.

        Args:
            features: [features] of the row that predicted the first of them.
            tokens: at least one.
            more: whether to draft another token, given the confidence of those before it.
            steps: has no effect: the head does not denoise.
        """
        drafts, confidence, others = list[int](), list[float](), []
        if not more(confidence):
            return Drafted()
        self.begin(features)
        for token in tokens[:-1]:
            self.read(token)
        newest = tokens[-1]
        while more(confidence):
            self._advance(newest, self._read_and_score)
            newest, chance, likely = self.choose(self._logits[0])
            drafts.append(newest)
            confidence.append(chance)
            others.append(likely)
        return Drafted(tuple(drafts), tuple(confidence), tuple(others))

    def begin(self, features: Tensor) -> None:
        """Begin after the row with these features [features]; the token that it predicted is to be read first."""
        self._features[0] = normalized(features.numpy())
        self.team.run_all(self._read_context)
        self.state[:] = 0

    def read(self, token: int) -> None:
        """Read the next token."""
        self._advance(token, self._read)

    def scoring(self, states: QuantizedActivations, logits: Floats) -> Table:
        """The job that scores the tokens after some states.

        Args:
            logits: [rows, vocabulary], the result.
        """
        return self._jobs.multiply([self._linear], states, logits)

    def choose(
        self, logits: Floats, places: NDArray[np.int64] | None = None
    ) -> tuple[int, float, tuple[tuple[int, float], ...]]:
        """The likeliest token, its probability, and other likely tokens with theirs.

        Args:
            logits: [n], of the tokens at `places` in the vocabulary; by default of all.
        """
        tokens, best = self._vocabulary if places is None else self._vocabulary[places], int(logits.argmax())
        chances = np.exp(logits - logits[best])
        chances /= chances.sum()
        near = sorted((float(chances[n]), int(tokens[n])) for n in np.flatnonzero(chances > _OTHER_CHANCE) if n != best)
        others = tuple((token, chance) for chance, token in near[: -_OTHERS - 1 : -1])
        return int(tokens[best]), float(chances[best]), others

    def _advance(self, token: int, jobs: Table) -> None:
        self._input[0, : self._hidden] = self._embed(token)
        self._x[:] = self.context
        self.team.run_all(jobs)


def _row(size: int) -> Floats:
    return np.zeros((1, size), np.float32)


def normalized(x: Floats) -> Floats:
    """RMS normalization without weights over the last dimension."""
    result: Floats = x / np.sqrt(np.square(x).mean(-1, keepdims=True) + _EPS)
    return result
