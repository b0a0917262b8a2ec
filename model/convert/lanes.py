"""Many texts side by side, padded: for writing training data by the hundred and for reading them while training.

`Decoder.run` serves conversations that come and go; here all lanes step together, so that a step is a few large
products, on a GPU one CUDA graph.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from model.attention import attend_many
from model.transformer import Decoder


class Lanes:
    """Keys and values of texts that grow together, a lane each; a token's index in its lane is its position.

    Args:
        decoder: with float weights.
        count, length: how many lanes, and for how many tokens each; one more than any text has.
    """

    def __init__(self, decoder: Decoder, count: int, length: int) -> None:
        c = decoder.config
        if length > c.context_length:
            raise ValueError(f"texts of {length} tokens do not fit into the model's context of {c.context_length}")
        self._decoder = decoder
        self.length = length
        shape = (count, c.kv_heads, length, c.head_dim)
        self.keys = [torch.zeros(shape, dtype=decoder.dtype, device=decoder.device) for _ in decoder.layers]
        self.values = [torch.zeros(shape, dtype=decoder.dtype, device=decoder.device) for _ in decoder.layers]

    @torch.no_grad()
    def read(self, tokens: Tensor, starts: Tensor, lanes: Tensor | None = None, seen: int | None = None) -> Tensor:
        """Read tokens behind what their lanes hold. Padding is harmless: nothing sees a position before it is
        written again, and what would stand behind a lane's end falls on its last position, which no text reaches.

        Args:
            tokens: [n, rows] ids.
            starts: [n], the position of the first token of each.
            lanes: [n], which lane each belongs to; all lanes in order when not given.
            seen: no row looks beyond this many positions; all of the lane when not given.

        Returns:
            [n, rows, hidden], ready for the head.
        """
        positions = starts[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        positions = positions.clamp(max=self.length - 1)
        length = seen or self.keys[0].shape[2]
        mask = torch.arange(length, device=tokens.device) <= positions[..., None]
        where = torch.arange(tokens.shape[0], device=tokens.device)[:, None] if lanes is None else lanes[:, None]
        decoder = self._decoder
        turns = decoder.turns(positions)
        x = decoder.embedding(tokens)
        for number, layer in enumerate(decoder.layers):

            def attention(query: Tensor, key: Tensor, value: Tensor, number: int = number) -> Tensor:
                keys, values = self.keys[number], self.values[number]
                keys[where, :, positions] = key
                values[where, :, positions] = value
                if lanes is not None:
                    keys, values = keys[lanes], values[lanes]
                return attend_many(query, keys[:, :, :length], values[:, :, :length], mask)

            x = decoder.run_layer(layer, x, turns, attention)
        return decoder.normalize(x, decoder.norm)


class Instructions:
    """Instructions begin many texts and are read once: later lanes are given a copy of their keys and values.

    Args:
        stop: ids that end a message; a text's instructions are its first message.
    """

    def __init__(self, lanes: Lanes, stop: frozenset[int]) -> None:
        self._lanes, self._stop = lanes, stop
        self._read: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = {}

    def count(self, tokens: Sequence[int]) -> int:
        """How many tokens of a text are instructions; its last token never is one."""
        return next((n + 1 for n, token in enumerate(tokens[:-1]) if token in self._stop), 0)

    def put(self, lane: int, tokens: Sequence[int]) -> int:
        """Let a lane hold the instructions of a text, and nothing else; returns how many tokens that are."""
        head = tuple(tokens[: self.count(tokens)])
        if not head:
            return 0
        both = zip(self._lanes.keys, self._lanes.values, strict=True)
        if head not in self._read:
            device = self._lanes.keys[0].device
            where = torch.tensor([lane], device=device)
            self._lanes.read(torch.tensor([head], device=device), torch.zeros_like(where), where, seen=len(head))
            self._read[head] = [
                (keys[lane, :, : len(head)].clone(), values[lane, :, : len(head)].clone()) for keys, values in both
            ]
            return len(head)
        for (keys, values), (key, value) in zip(both, self._read[head], strict=True):
            keys[lane, :, : len(head)], values[lane, :, : len(head)] = key, value
        return len(head)


def padded_together(texts: Sequence[Sequence[int]]) -> Tensor:
    """Texts as rows of one tensor, zeros behind the shorter ones: [texts, tokens of the longest]."""
    padded = torch.zeros(len(texts), max(map(len, texts)), dtype=torch.long)
    for n, tokens in enumerate(texts):
        padded[n, : len(tokens)] = torch.tensor(tokens)
    return padded
