"""A dense decoder in plain torch for Llama, Qwen2, Qwen3, Ministral and their diffusion variants: token ids and a
key-value cache in, logits out.

Sources: Llama (arXiv 2302.13971), Qwen2 (arXiv 2407.10671), Qwen3 (arXiv 2505.09388); tested against transformers on
random weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Literal

import torch
from torch import Tensor

from model.checkpoint.checkpoint import Checkpoint, DecoderConfig
from model.checkpoint.long_context import RopeScaling
from model.nn.adapter import Adapter, projection_shapes
from model.nn.attention import additive_mask, attend, attend_split, supports_attend_split
from model.nn.forward_batch import MASK, ForwardInput, ForwardInterrupted, Interruption, feature_layers, text_input
from model.nn.gpu.stored_weights import StoredHead, StoredLinear, stored_weight
from model.nn.kv_cache import KeyValueCache
from model.nn.layer import Layer
from model.nn.linear import Embedding, FloatHead, FloatLinear, Linear, cpu_kernels_installed
from model.nn.ragged import RaggedAttention, RaggedRows
from model.nn.rotary import RotaryEmbedding, rotate

Precision = Literal["int8", "float32", "bfloat16", "stored"]

CacheType = Literal["auto", "int8"]
"""How keys and values are kept: as activations are (`auto`), or quantized to int8."""

AttentionFunction = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(query [..., heads, head_dim], key, value [..., kv_heads, head_dim]) → [..., heads × head_dim]."""

AdapterHook = Callable[[Tensor, str, Tensor], Tensor]
"""(output of a group of projections, their names, their input) → the output including an adapter's delta."""


@dataclass(frozen=True)
class AttentionMask:
    """Which keys the new rows of one conversation attend to.

    Attributes:
        past: number of cached keys, which all rows attend to.
        new: [rows, rows] bool, which new rows each row attends to; None for a single row.
        mask: the same for all keys, from `additive_mask`; None for a single row, and where `attend_split` runs.
    """

    past: int
    new: Tensor | None
    mask: Tensor | None

    @staticmethod
    def of(inputs: ForwardInput, config: DecoderConfig, device: torch.device, dtype: torch.dtype) -> AttentionMask:
        """The mask of a conversation's new rows."""
        count, past = len(inputs.tokens), len(inputs.cache.tokens)
        if count == 1:
            return AttentionMask(past, None, None)
        new = inputs.attention_mask.to(device)
        if past and supports_attend_split(device, dtype, config.head_dim):
            return AttentionMask(past, new, None)
        mask = torch.cat((torch.ones(count, past, dtype=torch.bool, device=device), new), dim=1)
        return AttentionMask(past, new, additive_mask(mask, config.heads // config.kv_heads, dtype))

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """[rows, heads, head_dim] → [rows, heads × head_dim]."""
        if self.new is not None and self.mask is None:
            return attend_split(query, key, value, self.past, self.new)
        return attend(query, key, value, self.mask)


def add_delta(adapter: Adapter, rows: Tensor | slice, layer: int, out: Tensor, names: str, x: Tensor) -> Tensor:
    """Apply an adapter to the noise rows only: what precedes an `AdapterHook`'s arguments is bound to it."""
    out[rows] += adapter.delta(layer, names, x[rows])
    return out


def _no_adapter(out: Tensor, names: str, x: Tensor) -> Tensor:
    return out


def _deliver_features(batch: Sequence[ForwardInput], last: Tensor, tapped: Sequence[Tensor]) -> None:
    """Send the features of the rows with outputs to the conversations that ask for them."""
    end = 0
    for inputs in batch:
        end += len(inputs.tokens)
        if inputs.on_features is not None:
            rows = slice(end - inputs.num_outputs, end)
            inputs.on_features(row_features([states[rows] for states in tapped], last[rows]))


def row_features(tapped: Sequence[Tensor], last: Tensor) -> Tensor:
    """The features [n, features] of some rows.

    Args:
        tapped: states [n, hidden] between layers.
        last: [n, hidden], normalized, after all layers.
    """
    parts = [torch.nn.functional.rms_norm(states, last.shape[1:]) for states in tapped]
    return torch.cat((*parts, last), -1)


def _noise_rows(batch: Sequence[ForwardInput], device: torch.device) -> Tensor | slice | None:
    """The noise rows of a batch: a slice if they are contiguous, as in a batch of one conversation."""
    index = [n for n, flag in enumerate(flag for inputs in batch for flag in inputs.noise) if flag]
    if not index:
        return None
    first, last = index[0], index[-1]
    return slice(first, last + 1) if last - first + 1 == len(index) else torch.tensor(index, device=device)


def _expanded(linear: Linear) -> Linear:
    return linear.expanded() if isinstance(linear, StoredLinear) else linear


class Decoder:
    """A decoder with its weights on one device.

    Attributes:
        embedding, layers, norm, head: its weights, for code that runs them in another order (`convert`).
        scaling: of its positions, if any.
        interruption: asked before each layer of a forward pass; the pass ends with `ForwardInterrupted` if it says so.
            Asking takes time, so it is None where nothing may interrupt.
        ragged_attention: attention of all conversations of a batch at once, if they lie in slots; None for one after
            the other.

    Args:
        precision: `int8` (CPU only: weights in blocks as a GGUF file stores them, or as Q8_0, and int8 activations),
            `float32`, `bfloat16`, or `stored`: bfloat16, with the weights of a GGUF file in the blocks that it stores,
            where a GPU's kernels can read those.
        kv_cache_dtype: `int8` needs int8 weights.
        scaling: of its positions, for a context beyond the one it was trained on.

    Raises:
        BadModelFile: the checkpoint lacks a tensor.
        RuntimeError: a tensor's shape does not match the configuration.
        ValueError: int8 is not supported here.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        device: torch.device,
        precision: Precision,
        kv_cache_dtype: CacheType = "auto",
        scaling: RopeScaling | None = None,
    ) -> None:
        if precision == "int8" and device.type != "cpu":
            raise ValueError(f"int8 weights run on the CPU only, not on {device}: choose bfloat16 or float32 there")
        if precision == "int8" and not cpu_kernels_installed():
            raise ValueError("int8 needs llvmlite, which is not installed: choose float32")
        if kv_cache_dtype == "int8" and precision != "int8":
            raise ValueError("int8 keys and values need int8 weights, on a CPU: leave --kv-cache-dtype out")
        self.config: DecoderConfig = checkpoint.config
        if scaling is not None:
            self.config = replace(self.config, context_length=scaling.context_length)
        self.scaling = scaling
        self.device = device
        self.precision = precision
        self.dtype = torch.bfloat16 if precision in ("bfloat16", "stored") else torch.float32
        self._cache_dtype = torch.int8 if kv_cache_dtype == "int8" else self.dtype
        diffusion = self.config.diffusion
        self.mask_token = None if diffusion is None else diffusion.mask_token
        self._checkpoint: Checkpoint | None = checkpoint
        self._packed = None
        if precision == "int8":
            from model.nn.cpu.weights import PackedWeights  # late: conversion runs on machines without llvmlite

            self._packed = PackedWeights(checkpoint)
        self.embedding = self._embed("embed_tokens.weight")
        self.layers = [self._layer(f"layers.{n}") for n in range(self.config.layers)]
        self.norm = self._vector("norm.weight")
        self.head = self._output_head()
        rope = checkpoint.rope(None if scaling is None else scaling.settings())
        self.rotary = RotaryEmbedding.of(rope, self.config.context_length, device, self.dtype)
        self._block_layers = None
        if self._packed is not None:
            from model.nn.cpu.layers import BlockQuantizedLayers

            self._block_layers = BlockQuantizedLayers(
                self.config, self.layers, self.norm, quantized_cache=kv_cache_dtype == "int8"
            )
            self._packed.save()
        self._checkpoint = self._packed = None
        self.interruption: Interruption | None = None
        self.ragged_attention: RaggedAttention | None = None

    def new_cache(self) -> KeyValueCache:
        """An empty cache for this decoder."""
        return KeyValueCache(self.config, self._cache_dtype, self.device)

    @property
    def kernels(self) -> str | None:
        """Names the kernels of int8 weights and the processor they were compiled for; None without int8 weights."""
        return None if self._block_layers is None else self._block_layers.team.name

    @property
    def head_weight(self) -> Tensor:
        """The output head's float weight [vocabulary, hidden], for training, which uses slices of it.

        Raises:
            ValueError: the weights are no floats.
        """
        if not isinstance(self.head, FloatLinear):
            raise ValueError(f"{self.precision} weights cannot be trained: load them as bfloat16 or float32")
        return self.head.weight

    def expand_weights(self) -> None:
        """Make weights in blocks floats, where the kernels that read them cannot be used. Takes their memory."""
        self.layers = [
            replace(
                layer,
                query_key_value=_expanded(layer.query_key_value),
                output=_expanded(layer.output),
                gate_up=_expanded(layer.gate_up),
                down=_expanded(layer.down),
            )
            for layer in self.layers
        ]
        self.head = _expanded(self.head)
        self.precision = "bfloat16" if self.precision == "stored" else self.precision

    @property
    def nbytes(self) -> int:
        """Bytes of weights that one forward pass reads. The embedding table is not included: it is only indexed."""
        layers = ((one.query_key_value, one.output, one.gate_up, one.down) for one in self.layers)
        return sum(linear.nbytes for linear in (*chain.from_iterable(layers), self.head))

    @property
    def num_weights(self) -> int:
        """Number of weights that one forward pass multiplies every row by."""
        of_layer = sum(outputs * inputs for outputs, inputs in projection_shapes(self.config).values())
        return self.config.layers * of_layer + self.config.vocab_size * self.config.hidden

    def forward(self, tokens: Sequence[int], cache: KeyValueCache, *, logits: Literal["all", "last", "none"]) -> Tensor:
        """Run `tokens` after those that `cache` holds, and commit them to it.

        Args:
            tokens: ids of the new tokens, at least one.
            logits: the tokens to return logits for; `none` only fills the cache.

        Returns:
            [rows, vocabulary]: every row, the last one, or none.
        """
        num_outputs = {"all": len(tokens), "last": 1, "none": 0}[logits]
        (out,) = self.run([text_input(cache, tokens, num_outputs)])
        cache.commit(tokens)
        return out

    @torch.inference_mode()
    def run(self, batch: Sequence[ForwardInput], adapter: Adapter | None = None) -> list[Tensor]:
        """One forward pass over the new rows of several conversations. It writes their keys and values after what each
        cache holds; the caller commits them (`KeyValueCache.commit`, `.keep`).

        Args:
            adapter: the adapter for noise rows; without one they run through the base weights.

        Returns:
            For each conversation the logits of its last `num_outputs` rows, [num_outputs, vocabulary] float32, or their
            hidden states [num_outputs, hidden] if it asks for those.

        Raises:
            ForwardInterrupted: `interruption` demanded it.
        """
        sizes = [len(inputs.tokens) for inputs in batch]
        tokens = torch.tensor([token for inputs in batch for token in inputs.tokens], device=self.device)
        positions = torch.tensor([position for inputs in batch for position in inputs.positions], device=self.device)
        x = self.embedding(torch.where(tokens == MASK, self.mask_token or 0, tokens))
        if adapter is not None and any(any(inputs.noise) for inputs in batch):
            x = torch.where((tokens == MASK)[:, None], adapter.mask, x)
        rotary = self.rotary.at(positions)
        for inputs in batch:
            inputs.cache.reserve(len(inputs.tokens))
        taps = feature_layers(self.config) if any(inputs.on_features for inputs in batch) else ()
        if self._block_layers is None:
            last, tapped = self._run_layers(x, batch, rotary, adapter, taps)
        else:
            last, tapped = self._block_layers.run(x, batch, rotary, adapter, self.interruption, taps)
        _deliver_features(batch, last, tapped)
        states = last.split_with_sizes(sizes)
        outputs = [part[len(part) - inputs.num_outputs :] for part, inputs in zip(states, batch, strict=True)]
        pairs = list(zip(outputs, batch, strict=True))
        logits = iter(self._logits([part for part, inputs in pairs if not inputs.return_hidden_states]))
        return [part if inputs.return_hidden_states else next(logits) for part, inputs in pairs]

    def _run_layers(
        self,
        x: Tensor,
        batch: Sequence[ForwardInput],
        rotary: RotaryEmbedding,
        adapter: Adapter | None,
        taps: Sequence[int],
    ) -> tuple[Tensor, list[Tensor]]:
        """Normalized states after the last layer [rows, hidden], and the states after each number of layers in `taps`
        (`BlockQuantizedLayers.run`)."""
        tapped: list[Tensor] = []
        noise = _noise_rows(batch, self.device)
        sizes = [len(inputs.tokens) for inputs in batch]
        ragged = None if self.ragged_attention is None else RaggedRows.of(batch)
        masks = [] if ragged else [AttentionMask.of(one, self.config, self.device, self.dtype) for one in batch]
        for number, layer in enumerate(self.layers):
            if self.interruption is not None and self.interruption():
                raise ForwardInterrupted
            if number in taps:
                tapped.append(x)

            def attention(query: Tensor, key: Tensor, value: Tensor, number: int = number) -> Tensor:
                if ragged is not None and self.ragged_attention is not None:
                    return self.ragged_attention(query, *ragged.write(number, key, value), ragged)
                parts = (part.split_with_sizes(sizes) for part in (query, key, value))
                out = [
                    mask.attend(q, *inputs.cache.write(number, k, v))
                    for inputs, mask, q, k, v in zip(batch, masks, *parts, strict=True)
                ]
                return out[0] if len(out) == 1 else torch.cat(out)

            gated = None if adapter is None or noise is None else partial(add_delta, adapter, noise, number)
            x = self.run_layer(layer, x, rotary, attention, gated)
        return self.normalize(x, self.norm), tapped

    def _logits(self, states: Sequence[Tensor]) -> list[Tensor]:
        """[rows, hidden] of each conversation → [rows, vocabulary] of each. Runs the head at most once."""
        sizes = [len(part) for part in states]
        if not any(sizes):
            return [torch.empty(0, self.config.vocab_size) for _ in states]
        logits = self.head(torch.cat(list(states)))
        if self.mask_token is not None:
            logits[:, self.mask_token] = -torch.inf  # the model must never output a mask
        return list(logits.split_with_sizes(sizes))

    def run_layer(
        self,
        layer: Layer,
        x: Tensor,
        rotary: RotaryEmbedding,
        attention: AttentionFunction,
        hook: AdapterHook | None = None,
    ) -> Tensor:
        """One layer over rows of any shape [..., hidden]."""
        hook = hook or _no_adapter
        normed = self.normalize(x, layer.attention_norm)
        query, key, value = self.split_heads(layer, hook(layer.query_key_value(normed), "q k v", normed), rotary)
        attended = attention(query, key, value)
        x = x + hook(layer.output(attended), "o", attended)
        normed = self.normalize(x, layer.mlp_norm)
        gate, up = hook(layer.gate_up(normed), "gate up", normed).chunk(2, dim=-1)
        inner = torch.nn.functional.silu(gate) * up
        return x + hook(layer.down(inner), "down", inner)

    def split_heads(self, layer: Layer, fused: Tensor, rotary: RotaryEmbedding) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values [..., heads, head_dim] from the output of `layer.query_key_value`. Queries and keys
        are rotated."""
        c = self.config
        split = fused.view(*fused.shape[:-1], -1, c.head_dim)
        query_key, value = split.split_with_sizes((c.heads + c.kv_heads, c.kv_heads), dim=-2)
        if layer.head_norm is not None:
            query_key = torch.nn.functional.rms_norm(query_key, (c.head_dim,), None, c.norm_eps) * layer.head_norm
        query, key = rotate(query_key, rotary.cos, rotary.sin).split_with_sizes((c.heads, c.kv_heads), dim=-2)
        return query if rotary.query_scale is None else query * rotary.query_scale, key, value

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
        """Projections of the same input, fused into one matrix."""
        assert self._checkpoint is not None
        biases = [name.removesuffix("weight") + "bias" for name in names]
        bias = None
        if self._checkpoint.has_tensor(biases[0]):
            bias = torch.cat([self._checkpoint.tensor(name) for name in biases]).to(self.device, self.dtype)
        if self._packed is not None:
            return self._packed.linear(names, bias)
        if self.precision == "stored":
            # Gate and up share a loop, so they share a format.
            stored = stored_weight(self._checkpoint, names, self.device, self.dtype, 1 if len(names) == 2 else 2)
            if stored is not None:
                return StoredLinear(stored, bias)
        weight = torch.cat([self._checkpoint.tensor(name) for name in names])
        return FloatLinear(weight.to(self.device, self.dtype), bias)

    def _output_head(self) -> Linear:
        assert self._checkpoint is not None
        name = "lm_head.weight" if self._checkpoint.has_tensor("lm_head.weight") else "embed_tokens.weight"
        if self._packed is not None:
            return self._packed.linear([name], None)
        if self.precision == "stored":
            stored = stored_weight(self._checkpoint, [name], self.device, self.dtype)
            if stored is not None:
                return StoredHead(stored)
        return FloatHead(self._checkpoint.tensor(name).to(self.device, self.dtype))

    def _embed(self, name: str) -> Embedding:
        assert self._checkpoint is not None
        if self._packed is not None:
            return self._packed.embedding(name)
        return self._vector(name).__getitem__

    def _vector(self, name: str) -> Tensor:
        assert self._checkpoint is not None
        return self._checkpoint.tensor(name).to(self.device, self.dtype)
