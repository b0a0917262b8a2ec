"""Scores several possible continuations of a prompt in one forward pass: options that begin alike share their rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from model.nn.attention import causal_mask
from model.nn.forward_batch import ForwardInput
from model.nn.kv_cache import KeyValueCache


class OptionTree:
    """The token sequences of all options as a prefix tree. The root is the prompt's last row, every other node a row.

    Args:
        options: token ids of each option, not empty.
        stop_tokens: ids that end an option.
    """

    def __init__(self, options: Sequence[Sequence[int]], stop_tokens: Collection[int]) -> None:
        self._stop_tokens = list(stop_tokens)
        self._tokens: list[int] = []
        self._paths: list[list[int]] = []  # of each node: the rows from below the root to itself
        self._options: list[list[int]] = []  # of each option: its rows
        nodes: dict[tuple[int, ...], int] = {}
        for option in options:
            rows: list[int] = []
            for length, token in enumerate(option, 1):
                prefix = tuple(option[:length])
                if prefix not in nodes:
                    nodes[prefix] = len(nodes) + 1
                    self._tokens.append(token)
                    self._paths.append([*rows, nodes[prefix]])
                rows.append(nodes[prefix])
            self._options.append(rows)

    @property
    def num_nodes(self) -> int:
        """Rows besides the prompt's."""
        return len(self._tokens)

    def forward_input(self, cache: KeyValueCache, rest: Sequence[int]) -> ForwardInput:
        """The input of the forward pass.

        Args:
            cache: holds the prompt up to `rest`.
            rest: the prompt's last tokens. Their rows come first and may be committed afterwards. If there are none,
                the prompt's last row was read before, and the nodes alone have outputs.
        """
        past, rows = len(cache.tokens), len(rest) + self.num_nodes
        mask = torch.zeros(rows, rows, dtype=torch.bool)
        if rest:
            mask[:, : len(rest)] = True
            mask[: len(rest), : len(rest)] = causal_mask(len(rest), 0)
        positions = list(range(past, past + len(rest)))
        for node, path in enumerate(self._paths):
            mask[len(rest) + node, [len(rest) - 1 + row for row in path]] = True
            positions.append(past + len(rest) - 1 + len(path))
        outputs = self.num_nodes + min(1, len(rest))
        return ForwardInput(cache, [*rest, *self._tokens], positions, mask, [False] * rows, outputs)

    def rows(self, option: int) -> list[int]:
        """The rows of an option's tokens, of which the root is 0."""
        return list(self._options[option])

    def tokens(self, option: int) -> tuple[int, ...]:
        """The tokens of an option."""
        return tuple(self._tokens[row - 1] for row in self._options[option])

    def token_log_probabilities(self, logits: Tensor, option: int) -> list[float]:
        """How likely each token of an option is after those before it.

        Args:
            logits: [1 + num_nodes, vocabulary].
        """
        rows = self._options[option]
        parents = logits[[0, *rows[:-1]]].float()
        chosen = parents[range(len(rows)), list(self.tokens(option))]
        return [float(value) for value in chosen - parents.logsumexp(-1)]

    def probabilities(self, logits: Tensor) -> list[float]:
        """How likely each option is, if it is one of them.

        Args:
            logits: [1 + num_nodes, vocabulary].
        """
        logits = logits.float()
        totals = logits.logsumexp(-1)
        ends = logits[:, self._stop_tokens].logsumexp(-1) - totals
        scores = []
        for rows in self._options:
            parents, tokens = [0, *rows[:-1]], [self._tokens[row - 1] for row in rows]
            scores.append(logits[parents, tokens].sum() - totals[parents].sum() + ends[rows[-1]])
        return [float(share) for share in torch.stack(scores).softmax(0)]
