"""What the forward pass of a step starts: its kernels with all arguments, recorded on torch's `meta` device, where
models of any size fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lab.benchmarks.gpu_acceptance.random_models import RandomCheckpoint
from lab.benchmarks.gpu_acceptance.stored_weights import with_stored_weights
from model.checkpoint.checkpoint import DecoderConfig
from model.decode.device_steps import MAX_TOP
from model.decode.verify import verification_mask
from model.engine.device_state import DeviceState
from model.engine.token_choice import TokenChoice
from model.nn.adapter import Adapter, LowRank, projection_shapes
from model.nn.decoder import Decoder
from model.nn.gpu.fused_pass import FusedPass
from model.nn.gpu.triton_operations import TritonOperations
from model.nn.step_pass import StepShape

META = torch.device("meta")


@dataclass(frozen=True)
class Launch:
    """A start of a kernel: its positional arguments, and its compile-time constants and options."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: dict[str, Any]

    @property
    def name(self) -> str:
        """The kernel's name."""
        return str(self.kernel.__name__)

    @property
    def tensors(self) -> list[Tensor]:
        """Its tensors."""
        return [part for part in self.arguments if isinstance(part, Tensor)]


class RecordingOperations(TritonOperations):
    """Records launches instead of making them."""

    def __init__(self) -> None:
        super().__init__(META)
        self.launches: list[Launch] = []

    def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
        self.launches.append(Launch(kernel, grid, arguments, constants))


def recorded_pass(
    config: DecoderConfig,
    dtype: torch.dtype,
    drafts: int,
    copies: int,
    rank: int,
    past: int,
    batch: int = 1,
    *,
    stored: bool = False,
) -> Sequence[Launch]:
    """The launches of the layers and the head over the rows of a step.

    Args:
        past: positions of a slot. There are as many slots as conversations.
        batch: conversations.
        stored: whether the weights are in blocks, as in the bundled models' files.
    """
    decoder = meta_decoder(config, dtype)
    if stored:
        decoder = with_stored_weights(decoder)
    adapter = meta_adapter(config, dtype, rank, drafts) if drafts else None
    mask = verification_mask(drafts, copies, drafts).to(META)
    keys_values = torch.empty(2, config.layers, batch, config.kv_heads, past, config.head_dim, dtype=dtype, device=META)
    operations = RecordingOperations()
    shape = StepShape(keys_values, mask, drafts + 1 + copies, batch)
    step = FusedPass(decoder, adapter, shape, operations)
    x = torch.empty(shape.num_rows, config.hidden, dtype=dtype, device=META)
    positions = torch.empty(shape.num_rows, dtype=torch.long, device=META)
    lengths, slots = (torch.empty(batch, dtype=torch.long, device=META) for _ in range(2))
    step.predict(step.states(x, positions, lengths, slots, past))
    return operations.launches


def recorded_choice(
    config: DecoderConfig, dtype: torch.dtype, drafts: int, batch: int = 1, *, stored: bool = False
) -> Sequence[Launch]:
    """The launches of the head and of what chooses tokens, in a step that does not take the likeliest ones."""
    decoder, operations = meta_decoder(config, dtype), RecordingOperations()
    decoder = with_stored_weights(decoder) if stored else decoder
    keys_values = torch.empty(2, 1, batch + 1, config.kv_heads, 64, config.head_dim, dtype=dtype, device=META)
    shape = StepShape(keys_values, verification_mask(drafts, 0, 0).to(META), drafts + 1, batch)
    rows = shape.num_rows
    choice = TokenChoice(DeviceState(keys_values, drafts, 0), config.vocab_size, rows, operations.launch)
    logits = FusedPass(decoder, None, shape, operations).logits(
        torch.empty(rows, config.hidden, dtype=dtype, device=META)
    )
    slots, positions = (torch.empty(rows, dtype=torch.long, device=META) for _ in range(2))
    choice.choose(logits, slots, positions, torch.empty(rows, 1 + 2 * MAX_TOP, dtype=torch.int32, device=META))
    return operations.launches


class _ShapesOnly(RandomCheckpoint):
    """Weights without values."""

    def tensor(self, name: str) -> Tensor:
        return torch.empty(self.shapes()[name], device=META)


def meta_decoder(config: DecoderConfig, dtype: torch.dtype) -> Decoder:
    """A decoder whose weights have shapes only."""
    return Decoder(_ShapesOnly(config, META), META, "bfloat16" if dtype == torch.bfloat16 else "float32")


def meta_adapter(config: DecoderConfig, dtype: torch.dtype, rank: int, drafts: int) -> Adapter:
    """An adapter whose matrices have shapes only."""

    def empty(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=META)

    layers = tuple(
        {name: LowRank(empty(rank, depth), empty(columns, rank)) for name, (columns, depth) in shapes.items()}
        for shapes in [projection_shapes(config)] * config.layers
    )
    return Adapter(empty(config.hidden), layers, "", drafts, {})
