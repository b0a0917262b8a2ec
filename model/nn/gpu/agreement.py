"""Whether kernels compute what their twins in plain PyTorch do, operation by operation, each on the same input."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from model.nn.gpu.drafter_operations import Choice, DrafterOperations, Scores, TorchDrafterOperations
from model.nn.gpu.operations import Operations, Projection, Weight
from model.nn.gpu.torch_operations import TorchOperations
from model.nn.rotary import RotaryEmbedding
from model.nn.step_pass import StepShape

_COLUMNS = 16
"""Numbers of a row that are judged together: the narrowest tile that a program stores."""

_MAX_WRONG = 0.25
"""Share of these that may be off. Of a right kernel's, none is; a wrong tile has all of them off."""

_MAX_UNEQUAL = 0.1
"""Share of all bfloat16 results that may not be equal. Sums in another order differ by 1e-5, and a result differs only
where such a sum lies near the border of two bfloat16 numbers, 4e-3 apart: by estimate in 1 % of the cases on a GPU, and
in 0.01 % in Triton's interpreter. A kernel that rounds elsewhere or in another way differs in a quarter or more."""

_UNIT = {torch.bfloat16: 2**-7, torch.float32: 1e-4}
"""Relative differences that are not off: of bfloat16 one step between two numbers."""

_NOISE = 1e-5

_MAX_CONFIDENCE_ERROR = 1e-2
"""Relative, of a probability over the vocabulary."""

_MAX_OTHER_TOKENS = 0.1
"""Share of rows that may predict another token, because two are tied."""


def difference(found: Tensor, expected: Tensor) -> str | None:
    """What tells results from those of a right kernel; None if nothing does. [rows, …] each, of one type."""
    found, expected, kind = found.flatten(1).float(), expected.flatten(1).float(), expected.dtype
    typical = expected.abs().median(1, keepdim=True).values
    error = (found - expected).abs()
    off = ~(error <= _UNIT[kind] * (expected.abs() + typical))  # also what is not a number
    parts = torch.nn.functional.pad(off.float(), (0, -off.shape[1] % _COLUMNS)).view(len(off), -1, _COLUMNS)
    wrong = float(parts.mean(-1).max())
    if wrong > _MAX_WRONG:
        return f"{wrong:.0%} of {_COLUMNS} numbers are wrong"
    unequal = float((error > _NOISE * typical).float().mean())
    if kind == torch.bfloat16 and unequal > _MAX_UNEQUAL:
        return f"{unequal:.0%} of all numbers are rounded otherwise"
    return None


def prediction_difference(found: tuple[Tensor, Tensor], expected: tuple[Tensor, Tensor]) -> str | None:
    """The same for tokens and their probabilities."""
    others = float((found[0] != expected[0]).float().mean())
    if others > _MAX_OTHER_TOKENS:
        return f"{others:.0%} of the tokens are others"
    error = (found[1] / expected[1] - 1).abs()
    if not bool((error <= _MAX_CONFIDENCE_ERROR).all()):
        return f"probabilities are off by {float(error.max()):.0%}"
    return None


class WrongResults(Exception):
    """A kernel does not compute what plain PyTorch does."""


class ComparedOperations:
    """Implements `Operations`: computes everything twice, compares, and returns the results of plain PyTorch.

    Raises:
        WrongResults: in the operation that differs.
    """

    def __init__(self, kernels: Operations) -> None:
        self._kernels, self._twin = kernels, TorchOperations()

    def project(self, x: Tensor, projection: Projection, first_draft: int, **options: Any) -> Tensor:
        expected = self._twin.project(x, projection, first_draft, **options)
        _check("project", difference(self._kernels.project(x, projection, first_draft, **options), expected))
        return expected

    def gate_up(self, x: Tensor, norm: Tensor, projection: Projection, first_draft: int, eps: float) -> Tensor:
        found, expected = (do.gate_up(x, norm, projection, first_draft, eps) for do in (self._kernels, self._twin))
        _check("gate_up", difference(found, expected))
        return expected

    def attend(
        self,
        fused: Tensor,
        positions: Tensor,
        rotary: RotaryEmbedding,
        head_norm: Tensor | None,
        eps: float,
        keys: Tensor,
        values: Tensor,
        past_length: Tensor,
        slots: Tensor,
        shape: StepShape,
    ) -> Tensor:
        # Real queries attend to few positions. Random ones attend to all, so that none can be left out.
        random = torch.randn(fused.shape, generator=torch.Generator().manual_seed(0)).to(fused)
        places, results = shape.places(past_length, slots), list[list[Tensor]]()
        for rows in (random, fused):
            results = []
            for do in (self._kernels, self._twin):  # the twin overwrites what a right kernel has written
                caches = keys, values
                out = do.attend(rows, positions, rotary, head_norm, eps, *caches, past_length, slots, shape)
                results.append([out, *(cache[places.slots, :, places.cells].clone() for cache in caches)])
            for name, found, expected in zip(("result", "keys", "values"), *results, strict=True):
                _check(f"attend, {name}", difference(found, expected))
        return results[1][0]

    def predict(
        self, x: Tensor, norm: Tensor, weight: Weight, eps: float, excluded: int | None
    ) -> tuple[Tensor, Tensor]:
        results = []
        for rows in (self._probes(x, norm, weight), x):
            results = [do.predict(rows, norm, weight, eps, excluded) for do in (self._kernels, self._twin)]
            _check("predict", prediction_difference(*results))
        return results[1]

    @staticmethod
    def _probes(x: Tensor, norm: Tensor, weight: Weight) -> Tensor:
        """Rows like `x` that predict tokens of the whole vocabulary, the first and the last included: a tile that is
        left out hardly changes other probabilities."""
        tokens = torch.linspace(0, len(weight) - 1, len(x)).long().flip(0)
        rows = weight[tokens.to(x.device)] if isinstance(weight, Tensor) else weight.rows(tokens.tolist())
        return (rows.float() / norm.float()).to(x.dtype)


class ComparedDrafterOperations:
    """Implements `DrafterOperations` likewise. What is chosen depends on how the vocabulary is divided, so that choices
    are the kernels', once they are found to be right.

    Raises:
        WrongResults: in the operation that differs.
    """

    def __init__(self, kernels: DrafterOperations) -> None:
        self._kernels, self._twin = kernels, TorchDrafterOperations()

    def read_features(self, *arguments: Any) -> tuple[Tensor, Tensor]:
        found, expected = (do.read_features(*arguments) for do in (self._kernels, self._twin))
        for name, one, other in zip(("context", "input"), found, expected, strict=True):
            _check(f"read_features, {name}", difference(one, other))
        return expected

    def attend_block(self, fused: Tensor, weight: Tensor, residual: Tensor, block: int) -> Tensor:
        found, expected = (do.attend_block(fused, weight, residual, block) for do in (self._kernels, self._twin))
        _check("attend_block", difference(found, expected))
        return expected

    def score(self, x: Tensor, vocabulary: Tensor, block: int, count: int) -> Scores:
        found, expected = (do.score(x, vocabulary, block, count) for do in (self._kernels, self._twin))
        _check("score", difference(found.logits, expected.logits))
        _check("score, largest", difference(found.highest.amax(-1, keepdim=True), expected.highest))
        return found

    def compare(
        self, scores: Scores, state: Tensor, vocabulary: Tensor, number: int, count: int, mix: tuple[float, float]
    ) -> Choice:
        words = torch.arange(len(vocabulary), device=state.device)
        found, expected = (
            do.compare(scores, state, vocabulary, number, count, mix) for do in (self._kernels, self._twin)
        )
        _check("compare", prediction_difference(found.word(words), expected.word(words)))
        return found

    def read_draft(self, choice: Choice, *arguments: Any) -> Tensor:
        *_, drafts, chances, number = arguments
        for own in (_probes(choice), choice):
            results = []
            for do in (self._kernels, self._twin):
                z = do.read_draft(own, *arguments)
                results.append((z, drafts[:, number].clone(), chances[:, number].clone()))
                drafts[:, number] = chances[:, number] = 0
            (found, *chosen), (expected, *other) = results
            drafts[:, number], chances[:, number] = other
            _check("read_draft", prediction_difference((chosen[0], chosen[1]), (other[0], other[1])))
            _check("read_draft, input", difference(found, expected))
        return expected

    def store_drafts(self, *arguments: Any) -> None:
        *_, slots, kept, result, _ = arguments
        stored = []
        for do in (self._kernels, self._twin):
            do.store_drafts(*arguments)
            stored.append(torch.cat((kept[slots], result[:, -2 * kept.shape[1] :]), 1).clone())
            kept.zero_()
            result.zero_()
        wrong = float(((stored[0] - stored[1]).abs() > _MAX_CONFIDENCE_ERROR * stored[1]).float().mean())
        _check("store_drafts", f"{wrong:.0%} of all numbers are others" if wrong else None)


def _probes(choice: Choice) -> Choice:
    """Choices of tiles from the first to the last: one that is left out hardly ever has the likeliest word."""
    best, weights, (n, tiles) = choice.best.clone(), choice.weights.clone(), choice.best.shape
    rows, chosen = torch.arange(n), torch.linspace(0, tiles - 1, n).long().flip(0)
    best[rows, chosen] = choice.best.amax(-1) + 1
    weights[rows, chosen] = 1
    return Choice(best, choice.index, weights)


def _check(name: str, reason: str | None) -> None:
    if reason is not None:
        raise WrongResults(f"their results differ from PyTorch's ({name}: {reason})")
