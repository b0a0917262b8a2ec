"""One dense decoder for Llama, Qwen2, Qwen3 and Ministral, and their diffusion relatives: token ids and a cache in,
logits out, in plain torch.

Sources: Llama (arXiv 2302.13971), Qwen2 (arXiv 2407.10671), Qwen3 (arXiv 2505.09388); tested against transformers on
random weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from model.adapter import Adapter
from model.attention import attend, attend_split, splits, text_mask
from model.cache import KeyValueCache
from model.families import Attention
from model.linear import FloatEmbedding, FloatLinear, Int8Embedding, Int8Linear, Linear, int8_runs_here
from model.prepared import PreparedWeights
from model.rope import Rope
from model.weights import Checkpoint, DecoderConfig

Precision = Literal["int8", "float32", "bfloat16"]


Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(query [..., heads, head_dim], key, value [..., kv_heads, head_dim]) → [..., heads × head_dim]."""

Change = Callable[[Tensor, str, Tensor], Tensor]
"""(output of projections side by side, which ones, their input) → that output with an adapter's part in it."""

MASK = -1
"""Stands for a masked position among token ids; it enters with the adapter's own embedding, or as the model's own
mask token."""


PREFILL_CHUNK = 64
"""Tokens read in one pass. On two CPU cores such a pass takes about as long as two or three single tokens, which
is the longest that another conversation has to wait for its next word."""


@dataclass(frozen=True)
class Rows:
    """The new rows of one conversation in a pass.

    Attributes:
        cache: what the conversation has been read to; every row sees all of it.
        tokens: an id a row, or MASK.
        positions: place of each row in the text.
        sees: [rows, rows] bool, which new rows each row sees.
        noise: which rows pass through the adapter.
        wanted: of how many of the last rows the logits are wanted.
        exact: whether rows must come out the same to the last bit whatever rows are beside them, where weights are
            int8: there rounding carries it on into other words.
        states: whether the normalized states of the last layer are wanted in place of the logits made from them.
        reads: whether they are a piece of a prompt, the last one included, whose logits are wanted.
    """

    cache: KeyValueCache
    tokens: Sequence[int]
    positions: Sequence[int]
    sees: Tensor
    noise: Sequence[bool]
    wanted: int
    exact: bool = False
    states: bool = False
    reads: bool = False


def text_rows(
    cache: KeyValueCache,
    tokens: Sequence[int],
    wanted: int,
    attention: Attention = "causal",
    block: int = 1,
    *,
    states: bool = False,
) -> Rows:
    """Rows of plain text behind what the cache holds; `block` is the size of blocks in a family that has them."""
    count, past = len(tokens), len(cache.tokens)
    sees = text_mask(attention, count, past, block)[:, past:]
    return Rows(
        cache, tokens, range(past, past + count), sees, [False] * count, wanted,
        exact=wanted > 0, states=states, reads=wanted == 0,
    )  # fmt: skip


def reading(
    cache: KeyValueCache,
    ids: Sequence[int],
    attention: Attention = "causal",
    block: int = 1,
    meanwhile: Callable[[], object] = lambda: None,
) -> Iterator[Rows]:
    """Passes that bring a cache from what it holds, which begins `ids`, to hold all of them, a chunk a pass.

    Args:
        meanwhile: called after each; it may have the cache hold more of `ids`.
    """
    size = max(1, PREFILL_CHUNK // block) * block
    while len(cache.tokens) < len(ids):
        start = len(cache.tokens)
        chunk = ids[start : start + size]
        yield text_rows(cache, chunk, 0, attention, block)
        cache.commit(chunk)
        meanwhile()


@dataclass(frozen=True)
class _Look:
    """How the new rows of one conversation look at its keys.

    Attributes:
        past: keys that all of them see.
        mask: [rows, past + rows] bool; None where a single row sees everything.
    """

    past: int
    mask: Tensor | None

    @staticmethod
    def of(rows: Rows, device: torch.device) -> _Look:
        count, past = len(rows.tokens), len(rows.cache.tokens)
        if count == 1:
            return _Look(past, None)
        return _Look(past, torch.cat((torch.ones(count, past, dtype=torch.bool), rows.sees), dim=1).to(device))

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """[rows, heads, head_dim] → [rows, heads × head_dim]."""
        if self.mask is not None and self.past and splits(query):
            return attend_split(query, key, value, self.past, self.mask[:, self.past :])
        return attend(query, key, value, self.mask)


@dataclass(frozen=True)
class Gate:
    """Lets the adapter change noise rows, and no others."""

    adapter: Adapter
    noise: Tensor | slice

    def on(self, layer: int) -> Change:
        """What it does in a layer."""

        def change(out: Tensor, names: str, x: Tensor) -> Tensor:
            out[self.noise] += self.adapter.change(layer, names, x[self.noise])
            return out

        return change


def _unchanged(out: Tensor, names: str, x: Tensor) -> Tensor:
    return out


def _noise_rows(batch: Sequence[Rows], device: torch.device) -> Tensor | slice | None:
    """Which rows of a pass are noise: a slice where they stand together, as those of one conversation do."""
    places = [n for n, flag in enumerate(flag for rows in batch for flag in rows.noise) if flag]
    if not places:
        return None
    first, last = places[0], places[-1]
    return slice(first, last + 1) if last - first + 1 == len(places) else torch.tensor(places, device=device)


@dataclass(frozen=True)
class Turns:
    """The rotary angles of some positions.

    Attributes:
        cos, sin: [..., 1, head_dim]; the first half of `sin` is negative, as `rotate` wants it.
        query_scale: [..., 1, 1], what queries are multiplied by; None for 1.
    """

    cos: Tensor
    sin: Tensor
    query_scale: Tensor | None


@dataclass(frozen=True)
class Layer:
    """The weights of one layer; projections of the same input are side by side in one product.

    Attributes:
        head_norm: [heads + kv_heads, head_dim], for backbones that normalize every query and key head.
    """

    attention_norm: Tensor
    query_key_value: Linear
    head_norm: Tensor | None
    output: Linear
    mlp_norm: Tensor
    gate_up: Linear
    down: Linear


class Decoder:
    """A decoder with its weights on one device.

    Attributes:
        embedding, layers, norm, head: its weights, for code that runs them in another order (`convert`).

    Args:
        checkpoint: where the weights come from.
        device: where they go.
        precision: `int8` (CPU only), `float32` or `bfloat16`.

    Raises:
        BadModelFile: the checkpoint lacks a tensor.
        RuntimeError: a tensor has another shape than the configuration says.
        ValueError: int8 was asked for where it does not run.
    """

    def __init__(self, checkpoint: Checkpoint, device: torch.device, precision: Precision) -> None:
        if precision == "int8" and device.type != "cpu":
            raise ValueError(f"int8 weights run on the CPU only, not on {device}: choose bfloat16 or float32 there")
        if precision == "int8" and not int8_runs_here():
            raise ValueError(
                "this build of torch has no int8 products on this processor, or Numba is not installed: choose float32"
            )
        self.config: DecoderConfig = checkpoint.config
        self.device = device
        self.precision = precision
        self.dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        denoising = self.config.denoising
        self.mask_token = None if denoising is None else denoising.mask
        self._checkpoint: Checkpoint | None = checkpoint
        self._prepared = PreparedWeights(checkpoint) if precision == "int8" else None
        self.embedding = self._embed("embed_tokens.weight")
        self.layers = [self._layer(f"layers.{n}") for n in range(self.config.layers)]
        self.norm = self._vector("norm.weight")
        head = "lm_head.weight" if checkpoint.has("lm_head.weight") else "embed_tokens.weight"
        self.head = self._linear([head])
        self._turns = self._all_turns(checkpoint.rope())
        self._int8_layers = None
        if precision == "int8":
            from model.int8_layers import Int8Layers  # Numba is wanted for nothing else

            self._int8_layers = Int8Layers(self.config, self.layers, self.norm)
        if self._prepared is not None:
            self._prepared.save()
        self._checkpoint = self._prepared = None

    def new_cache(self) -> KeyValueCache:
        """An empty cache that fits this decoder."""
        return KeyValueCache(self.config, self.dtype, self.device)

    @property
    def head_weight(self) -> Tensor:
        """The head's float weight [vocabulary, hidden], for code that needs a part of it.

        Raises:
            ValueError: the weights are int8.
        """
        if not isinstance(self.head, FloatLinear):
            raise ValueError("int8 weights cannot be taught: load them as bfloat16 or float32")
        return self.head.weight

    @property
    def nbytes(self) -> int:
        """Bytes of weights that one pass reads; the embedding table is only looked up."""
        return sum(part.nbytes for part in self._products())

    @property
    def weights(self) -> int:
        """Weights that one pass multiplies every row with."""
        return sum(part.weights for part in self._products())

    def _products(self) -> list[Linear]:
        layers = [
            part for layer in self.layers for part in (layer.query_key_value, layer.output, layer.gate_up, layer.down)
        ]
        return [*layers, self.head]

    def forward(self, tokens: Sequence[int], cache: KeyValueCache, *, logits: Literal["all", "last", "none"]) -> Tensor:
        """Read `tokens` behind those that `cache` holds, and add them to it.

        Args:
            tokens: ids of the new tokens, at least one.
            logits: for which of them to predict the next token.

        Returns:
            [rows, vocabulary]: every row, the last one only, or none (for reading ahead).
        """
        wanted = {"all": len(tokens), "last": 1, "none": 0}[logits]
        (out,) = self.run([text_rows(cache, tokens, wanted)])
        cache.commit(tokens)
        return out

    @torch.inference_mode()
    def run(self, batch: Sequence[Rows], adapter: Adapter | None = None) -> list[Tensor]:
        """One pass over the new rows of several conversations. Their keys and values are written behind what each
        cache holds, but belong to it only once they are committed (`KeyValueCache.commit`, `.keep`).

        Args:
            adapter: what noise rows pass through; without one they pass through the bare weights.

        Returns:
            For each conversation [wanted, vocabulary]: the logits of its last `wanted` rows, in the head's own dtype;
            or their states [wanted, hidden], where it asks for those.
        """
        sizes = [len(rows.tokens) for rows in batch]
        tokens = torch.tensor([token for rows in batch for token in rows.tokens], device=self.device)
        positions = torch.tensor([at for rows in batch for at in rows.positions], device=self.device)
        x = self.embedding(torch.where(tokens == MASK, self.mask_token or 0, tokens))
        if adapter is not None and any(any(rows.noise) for rows in batch):
            x = torch.where((tokens == MASK)[:, None], adapter.mask, x)
        turns = self.turns(positions)
        for rows in batch:
            rows.cache.reserve(len(rows.tokens))
        through = self._through if self._int8_layers is None else self._int8_layers.run
        states = through(x, batch, turns, adapter).split_with_sizes(sizes)
        kept = [part[len(part) - rows.wanted :] for part, rows in zip(states, batch, strict=True)]
        logits = iter(self._logits([part for part, rows in zip(kept, batch, strict=True) if not rows.states]))
        return [part if rows.states else next(logits) for part, rows in zip(kept, batch, strict=True)]

    def _through(self, x: Tensor, batch: Sequence[Rows], turns: Turns, adapter: Adapter | None) -> Tensor:
        """Normalized states behind the last layer [rows, hidden]."""
        noise = _noise_rows(batch, self.device)
        gate = Gate(adapter, noise) if adapter is not None and noise is not None else None
        sizes, looks = [len(rows.tokens) for rows in batch], [_Look.of(rows, self.device) for rows in batch]
        for number, layer in enumerate(self.layers):

            def attention(query: Tensor, key: Tensor, value: Tensor, number: int = number) -> Tensor:
                parts = (part.split_with_sizes(sizes) for part in (query, key, value))
                seen = [
                    look.attend(q, *rows.cache.write(number, k, v))
                    for rows, look, q, k, v in zip(batch, looks, *parts, strict=True)
                ]
                return seen[0] if len(seen) == 1 else torch.cat(seen)

            x = self.run_layer(layer, x, turns, attention, None if gate is None else gate.on(number))
        return self.normalize(x, self.norm)

    def _logits(self, states: Sequence[Tensor]) -> list[Tensor]:
        """[rows, hidden] of each conversation → [rows, vocabulary] of each; the head is run once, if at all."""
        sizes = [len(part) for part in states]
        if not any(sizes):
            return [torch.empty(0, self.config.vocab_size) for _ in states]
        logits = self.head(torch.cat(list(states)))
        if self.mask_token is not None:
            logits[:, self.mask_token] = -torch.inf  # a mask is never said
        return list(logits.split_with_sizes(sizes))

    def run_layer(
        self, layer: Layer, x: Tensor, turns: Turns, attention: Attend, change: Change | None = None
    ) -> Tensor:
        """One layer over rows of any shape [..., hidden]."""
        change = change or _unchanged
        normal = self.normalize(x, layer.attention_norm)
        query, key, value = self.heads(layer, change(layer.query_key_value(normal), "q k v", normal), turns)
        joined = attention(query, key, value)
        x = x + change(layer.output(joined), "o", joined)
        normal = self.normalize(x, layer.mlp_norm)
        half, up = change(layer.gate_up(normal), "gate up", normal).chunk(2, dim=-1)
        inner = torch.nn.functional.silu(half) * up
        return x + change(layer.down(inner), "down", inner)

    def turns(self, positions: Tensor) -> Turns:
        """What positions of any shape [...] do to queries and keys."""
        every = self._turns
        query_scale = None if every.query_scale is None else every.query_scale[positions]
        return Turns(every.cos[positions], every.sin[positions], query_scale)

    def heads(self, layer: Layer, mixed: Tensor, turns: Turns) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values from what `layer.query_key_value` gives, in their places: [..., heads, head_dim]."""
        c = self.config
        split = mixed.view(*mixed.shape[:-1], -1, c.head_dim)
        both, value = split.split_with_sizes((c.heads + c.kv_heads, c.kv_heads), dim=-2)
        if layer.head_norm is not None:
            both = torch.nn.functional.rms_norm(both, (c.head_dim,), None, c.norm_eps) * layer.head_norm
        query, key = rotate(both, turns.cos, turns.sin).split_with_sizes((c.heads, c.kv_heads), dim=-2)
        return query if turns.query_scale is None else query * turns.query_scale, key, value

    def normalize(self, x: Tensor, weight: Tensor) -> Tensor:
        """RMS normalization over the last dimension."""
        return torch.nn.functional.rms_norm(x, (self.config.hidden,), weight, self.config.norm_eps)

    def _layer(self, name: str) -> Layer:
        return Layer(
            attention_norm=self._vector(f"{name}.input_layernorm.weight"),
            query_key_value=self._linear([f"{name}.self_attn.{part}_proj.weight" for part in "qkv"]),
            head_norm=self._head_norm(f"{name}.self_attn") if self.config.backbone == "qwen3" else None,
            output=self._linear([f"{name}.self_attn.o_proj.weight"]),
            mlp_norm=self._vector(f"{name}.post_attention_layernorm.weight"),
            gate_up=self._linear([f"{name}.mlp.gate_proj.weight", f"{name}.mlp.up_proj.weight"]),
            down=self._linear([f"{name}.mlp.down_proj.weight"]),
        )

    def _head_norm(self, name: str) -> Tensor:
        query, key = self._vector(f"{name}.q_norm.weight"), self._vector(f"{name}.k_norm.weight")
        return torch.cat((query.expand(self.config.heads, -1), key.expand(self.config.kv_heads, -1)))

    def _linear(self, names: list[str]) -> Linear:
        """One product for several projections of the same input, side by side."""
        assert self._checkpoint is not None
        biases = [name.removesuffix("weight") + "bias" for name in names]
        bias = None
        if self._checkpoint.has(biases[0]):
            bias = torch.cat([self._checkpoint.tensor(name) for name in biases]).to(self.device, self.dtype)
        if self._prepared is not None:
            return Int8Linear(*self._prepared.rows(names), bias)
        weight = torch.cat([self._checkpoint.tensor(name) for name in names])
        return FloatLinear(weight.to(self.device, self.dtype), bias)

    def _embed(self, name: str) -> Int8Embedding | FloatEmbedding:
        assert self._checkpoint is not None
        if self._prepared is not None:
            return Int8Embedding(*self._prepared.rows([name]))
        return FloatEmbedding(self._checkpoint.tensor(name).to(self.device, self.dtype))

    def _vector(self, name: str) -> Tensor:
        assert self._checkpoint is not None
        return self._checkpoint.tensor(name).to(self.device, self.dtype)

    def _all_turns(self, rope: Rope) -> Turns:
        """For every position of the context."""
        positions = torch.arange(self.config.context_length)
        angles = positions.float()[:, None] * rope.frequency
        both = torch.cat((angles, angles), dim=-1)[:, None, :]
        cos, sin = (both.cos() * rope.scale, both.sin() * rope.scale)
        query_scale = None
        if rope.query_beta:
            grown = 1 + rope.query_beta * torch.log1p((positions // rope.query_period).float())
            query_scale = grown[:, None, None].to(self.device, self.dtype)
        sin[..., : sin.shape[-1] // 2].neg_()
        return Turns(cos.to(self.device, self.dtype), sin.to(self.device, self.dtype), query_scale)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn [..., heads, head_dim] by the angles of their positions, the first half of `sin` negative."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)
