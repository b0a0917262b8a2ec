"""The forward passes that denoise a block, as CUDA graphs: finished text whose keys are not cached yet, if any, and the
block after it. The rules of denoising run on their logits, as on those of any other forward pass.

A family's blocks begin at fixed places, or anywhere. There is a graph for each number of finished tokens that a pass
may begin with, and other forward passes are not captured: prompts, several blocks in flight, the end of the context,
and families in which finished text attends to later tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from model.checkpoint.architectures import DiffusionConfig
from model.engine.cuda_step import CapturedFunction, all_captured
from model.nn.adapter import Adapter
from model.nn.attention import denoising_mask, text_mask
from model.nn.decoder import Decoder
from model.nn.forward_batch import MASK, ForwardInput
from model.nn.gpu.operations import Operations
from model.nn.gpu.selection import select_pass
from model.nn.kv_slab import KeyValueSlab, SlotCache
from model.nn.step_pass import StepPass, StepShape

MAX_REPLAYS = 4
"""Conversations up to which a replay for each is faster than one forward pass that is not captured: by estimate 2 ms
each, and 8 to 10 ms."""

_MAX_FREE_BLOCK = 8
"""Blocks that may begin anywhere are captured up to this size: the text before one may have fewer tokens than it."""


class CapturedBlocks:
    """Runs such forward passes for conversations whose cache is in a slot.

    Args:
        adapter: what the rows of a block go through, if the family has no weights of its own for them.
    """

    def __init__(
        self,
        decoder: Decoder,
        adapter: Adapter | None,
        diffusion: DiffusionConfig,
        slab: KeyValueSlab,
        operations: Operations | None = None,
    ) -> None:
        self._passes: dict[tuple[int, int], _BlockPass] = {}
        if diffusion.text_attention == "bidirectional":
            return
        size = diffusion.block_size
        step_pass: StepPass | None = None
        free = not diffusion.aligned and size <= _MAX_FREE_BLOCK
        for num_clean in range(size + 1) if free else (0, size):
            text = text_mask(diffusion.text_attention, num_clean, 0, diffusion.block_size)
            mask = denoising_mask(text, [size], diffusion.block_attention)
            first_noise = num_clean if adapter else num_clean + size
            shape = StepShape(slab.keys_values, mask.to(decoder.device), first_noise)
            step_pass = step_pass.with_shape(shape) if step_pass else select_pass(decoder, adapter, shape, operations)
            self._passes[num_clean, size] = _BlockPass(decoder, adapter, step_pass, mask, size + (num_clean > 0))

    def warm_up(self) -> None:
        """Capture every graph, so that no response waits for it."""
        all_captured(self._capture)

    def _capture(self) -> None:
        pool = None
        for block_pass in reversed(self._passes.values()):  # the largest comes first: later ones reuse its memory
            pool = block_pass.function.capture(pool)

    def run(self, inputs: ForwardInput) -> Tensor | None:
        """The logits [num_outputs, vocabulary] of a forward pass, as `Decoder.run` returns them; None if there is no
        graph for it. Its keys and values are written like those of any other."""
        count, cache = len(inputs.tokens), inputs.cache
        for num_clean in (count - inputs.num_outputs, count - inputs.num_outputs + 1):
            block_pass = self._passes.get((num_clean, count - num_clean))
            if block_pass is not None and block_pass.serves(inputs) and isinstance(cache, SlotCache):
                cache.reserve(count)
                return None if cache.slot is None else block_pass.run(cache.slot, len(cache.tokens), inputs.tokens)
        return None


class _BlockPass:
    """The forward pass for one number of finished tokens."""

    def __init__(
        self, decoder: Decoder, adapter: Adapter | None, step_pass: StepPass, mask: Tensor, num_outputs: int
    ) -> None:
        self._decoder, self._adapter, self._pass = decoder, adapter, step_pass
        self._mask, self._num_outputs = mask, num_outputs
        shape, device = step_pass.shape, decoder.device
        nobody = shape.keys_values.shape[2] - 1
        # The slot, the number of cached tokens, and the tokens: one copy from the host.
        self._inputs = torch.tensor([nobody, 0, *[0] * shape.num_rows], dtype=torch.long, device=device)
        self._rows = torch.arange(shape.num_rows, device=device)
        self._logits = torch.zeros(num_outputs, decoder.config.vocab_size, device=device)
        self.function = CapturedFunction(self._run, device)

    def serves(self, inputs: ForwardInput) -> bool:
        """Whether this is the forward pass that the input asks for."""
        past, shape = len(inputs.cache.tokens), self._pass.shape
        noise = [self._adapter is not None and n >= shape.num_clean for n in range(shape.num_rows)]
        return (
            inputs.num_outputs == self._num_outputs
            and list(inputs.positions) == list(range(past, past + shape.num_rows))
            and list(inputs.noise) == noise
            and torch.equal(inputs.attention_mask, self._mask)
        )

    def run(self, slot: int, past: int, tokens: Sequence[int]) -> Tensor:
        """Its logits. They are a copy, because the next replay overwrites them."""
        self._inputs.copy_(torch.tensor([slot, past, *tokens]))
        self.function()
        return self._logits.clone()

    def _run(self) -> None:
        decoder = self._decoder
        slot, past, tokens = self._inputs[:1], self._inputs[1:2], self._inputs[2:]
        masked = tokens == MASK
        x = decoder.embedding(torch.where(masked, decoder.mask_token or 0, tokens))
        if self._adapter is not None:
            x = torch.where(masked[:, None], self._adapter.mask, x)
        capacity = self._pass.shape.capacity
        states = self._pass.states(x, past + self._rows, past, slot, capacity)[-self._num_outputs :]
        logits = decoder.head(decoder.normalize(states, decoder.norm))
        if decoder.mask_token is not None:
            logits[:, decoder.mask_token] = -torch.inf
        self._logits.copy_(logits)
