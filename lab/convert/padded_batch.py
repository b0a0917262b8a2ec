"""A batch of padded sequences that advance together: used to generate training data and to read it during training.

`Decoder.run` serves conversations that start and end at any time. Here all sequences advance together, so a step is a
few large matrix multiplications (on a GPU, one CUDA graph).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from model.nn.attention import additive_mask, batched_attend
from model.nn.decoder import Decoder

_GPU_LENGTH_MULTIPLE = 64


def padded_length(length: int, device: torch.device) -> int:
    """A number of tokens, on a GPU rounded up so that it sees few shapes: libraries plan for each of them anew. On a
    CPU padding would only cost time."""
    return length if device.type == "cpu" else -(-length // _GPU_LENGTH_MULTIPLE) * _GPU_LENGTH_MULTIPLE


class PaddedBatch:
    """Keys and values of a batch of sequences, one per slot. A token's index in its slot is its position.

    Args:
        decoder: a decoder with float weights.
        batch_size: number of slots.
        max_length: number of tokens per slot, at least one more than the longest text; padded as far as the context
            allows.

    Raises:
        ValueError: the texts do not fit into the model's context.
    """

    def __init__(self, decoder: Decoder, batch_size: int, max_length: int) -> None:
        c = decoder.config
        if max_length > c.context_length:
            raise ValueError(f"texts of {max_length} tokens do not fit into the model's context of {c.context_length}")
        self._decoder = decoder
        self.max_length = min(padded_length(max_length, decoder.device), c.context_length)
        shape = (batch_size, c.kv_heads, self.max_length, c.head_dim)
        self.keys = [torch.zeros(shape, dtype=decoder.dtype, device=decoder.device) for _ in decoder.layers]
        self.values = [torch.zeros(shape, dtype=decoder.dtype, device=decoder.device) for _ in decoder.layers]

    def padded(self, length: int) -> int:
        """`padded_length`, as far as a slot has room."""
        return min(padded_length(length, self._decoder.device), self.max_length)

    @torch.no_grad()
    def forward(
        self, tokens: Tensor, starts: Tensor, slots: Tensor | None = None, attended: int | None = None
    ) -> Tensor:
        """Run tokens that follow those in their slots.

        Padding is harmless: no token attends to a position before it has been overwritten, and what would exceed a
        slot is written to its last position, which no text reaches.

        Args:
            tokens: [n, length] ids.
            starts: [n], the position of the first of these tokens in each slot.
            slots: [n], the slot of each; all slots in order by default.
            attended: number of positions that attention considers; the whole slot by default.

        Returns:
            [n, length, hidden], ready for the head.
        """
        positions = starts[:, None] + torch.arange(tokens.shape[1], device=tokens.device)
        positions = positions.clamp(max=self.max_length - 1)
        length = attended or self.keys[0].shape[2]
        causal = torch.arange(length, device=tokens.device) <= positions[..., None]
        index = torch.arange(tokens.shape[0], device=tokens.device)[:, None] if slots is None else slots[:, None]
        decoder = self._decoder
        mask = additive_mask(causal, decoder.config.heads // decoder.config.kv_heads, decoder.dtype)
        rotary = decoder.rotary.at(positions)
        x = decoder.embedding(tokens)
        for number, layer in enumerate(decoder.layers):

            def attention(query: Tensor, key: Tensor, value: Tensor, number: int = number) -> Tensor:
                keys, values = self.keys[number], self.values[number]
                keys[index, :, positions] = key
                values[index, :, positions] = value
                if slots is not None:
                    keys, values = keys[slots], values[slots]
                return batched_attend(query, keys[:, :, :length], values[:, :, :length], mask)

            x = decoder.run_layer(layer, x, rotary, attention)
        return decoder.normalize(x, decoder.norm)


class SystemPromptCache:
    """Runs each system prompt once and copies its keys and values into every later slot that begins with it.

    Args:
        stop: ids of the tokens that end a message; a text's system prompt is its first message.
    """

    def __init__(self, batch: PaddedBatch, stop: frozenset[int]) -> None:
        self._batch, self._stop = batch, stop
        self._cached: dict[tuple[int, ...], list[tuple[Tensor, Tensor]]] = {}

    def length(self, tokens: Sequence[int]) -> int:
        """Number of tokens of a text's system prompt, which never includes the text's last token."""
        return next((n + 1 for n, token in enumerate(tokens[:-1]) if token in self._stop), 0)

    def fill(self, slot: int, tokens: Sequence[int]) -> int:
        """Fill a slot with the system prompt of a text, and nothing else; returns its number of tokens."""
        prompt = tuple(tokens[: self.length(tokens)])
        if not prompt:
            return 0
        layers = zip(self._batch.keys, self._batch.values, strict=True)
        if prompt not in self._cached:
            device = self._batch.keys[0].device
            slots = torch.tensor([slot], device=device)
            ids = torch.tensor([prompt], device=device)
            self._batch.forward(ids, torch.zeros_like(slots), slots, attended=len(prompt))
            self._cached[prompt] = [
                (keys[slot, :, : len(prompt)].clone(), values[slot, :, : len(prompt)].clone())
                for keys, values in layers
            ]
            return len(prompt)
        for (keys, values), (key, value) in zip(layers, self._cached[prompt], strict=True):
            keys[slot, :, : len(prompt)], values[slot, :, : len(prompt)] = key, value
        return len(prompt)


def pad_sequences(sequences: Sequence[Sequence[int]], length: int) -> Tensor:
    """Token sequences as one tensor, padded with zeros at the end: [sequences, length] int64."""
    padded = torch.zeros(len(sequences), length, dtype=torch.long)
    for n, tokens in enumerate(sequences):
        padded[n, : len(tokens)] = torch.tensor(tokens)
    return padded
