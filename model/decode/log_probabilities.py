"""Log probabilities of the tokens that a response consists of, for callers that ask for them.

They are those of the distribution that the token was chosen from, before temperature, top-k and top-p: of the base
model's row that verified it, among the tokens that the response's grammar allows. So a forced token has 0, and the sum
is the log probability of the whole text, drafts or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class TokenLogProbability:
    """How likely a committed token was.

    Attributes:
        token: its id.
        value: natural logarithm of its probability.
        top: the most likely tokens there, with theirs, the most likely one first. Tokens that are not allowed are left
            out.
    """

    token: int
    value: float
    top: tuple[tuple[int, float], ...] = ()


@torch.inference_mode()
def log_probabilities(
    logits: Tensor, rows: Sequence[int], tokens: Sequence[int], num_top: int
) -> tuple[TokenLogProbability, ...]:
    """The log probability of each token.

    Args:
        logits: [rows, vocabulary], -∞ where a token is not allowed.
        rows: of each token, the row that it was chosen from.
        num_top: how many of the most likely tokens to name.
    """
    if not tokens:
        return ()
    distributions = logits[list(rows)].float().log_softmax(-1)
    values = distributions[range(len(tokens)), list(tokens)].tolist()
    best = distributions.topk(min(num_top, distributions.shape[-1]))
    return tuple(
        TokenLogProbability(
            token, value, tuple((id_, top) for id_, top in zip(ids, tops, strict=True) if top > -torch.inf)
        )
        for token, value, ids, tops in zip(tokens, values, best.indices.tolist(), best.values.tolist(), strict=True)
    )


def forced(tokens: Sequence[int], num_top: int) -> tuple[TokenLogProbability, ...]:
    """The log probability of tokens that a grammar forces."""
    return tuple(TokenLogProbability(token, 0.0, ((token, 0.0),) if num_top else ()) for token in tokens)
