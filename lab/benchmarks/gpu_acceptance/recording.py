"""What the forward pass of a step starts: its kernels with all arguments, recorded on torch's `meta` device, where
models of any size fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lab.benchmarks.gpu_acceptance.counting import CountedOperations, storage_of
from lab.benchmarks.gpu_acceptance.random_models import TINY, RandomCheckpoint, random_model
from lab.benchmarks.gpu_acceptance.runners import new_runner
from lab.benchmarks.gpu_acceptance.stored_weights import with_stored_weights
from model.checkpoint.checkpoint import DecoderConfig
from model.decode.verify import verification_mask
from model.engine import cuda_graph
from model.nn.adapter import Adapter, LowRank, projection_shapes
from model.nn.batch_drafter import BatchDrafter
from model.nn.block_drafter import BlockDrafterWeights, shapes
from model.nn.decoder import Decoder
from model.nn.draft_head import DraftHeadWeights
from model.nn.forward_batch import num_features
from model.nn.gpu.fused_drafter import FusedDrafter
from model.nn.gpu.fused_pass import FusedPass
from model.nn.gpu.triton_drafter import TritonDrafterOperations
from model.nn.gpu.triton_operations import TritonOperations
from model.nn.gpu.triton_ragged import TritonAttention
from model.nn.ragged import RaggedRows
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


@dataclass(frozen=True)
class RecordedStep:
    """What a step does.

    Attributes:
        launches: its kernels.
        others: operations of plain PyTorch beside them, each of which is a kernel.
        workspace: bytes of results between kernels that are in use at a time.
    """

    launches: list[Launch]
    others: int
    workspace: int

    @property
    def nodes(self) -> int:
        """Kernels of its graph."""
        return len(self.launches) + self.others


class RecordingOperations(TritonOperations):
    """Records launches instead of making them."""

    def __init__(self) -> None:
        super().__init__(META)
        self.launches: list[Launch] = []

    def start(self, kernel: Any, grid: tuple[int, ...], arguments: tuple[Any, ...], constants: dict[str, Any]) -> None:
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
    mask = verification_mask(drafts, ((0, copies),), drafts).to(META)
    keys_values = torch.empty(2, config.layers, batch, config.kv_heads, past, config.head_dim, dtype=dtype, device=META)
    operations = RecordingOperations()
    shape = StepShape(keys_values, mask, drafts + 1 + copies, batch)
    step = FusedPass(decoder, adapter, shape, operations)
    x = torch.empty(shape.num_rows, config.hidden, dtype=dtype, device=META)
    positions = torch.empty(shape.num_rows, dtype=torch.long, device=META)
    lengths, slots = (torch.empty(batch, dtype=torch.long, device=META) for _ in range(2))
    step.predict(step.states(x, positions, lengths, slots, past))
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


_SIZE, _INNER, _WORDS, _ROWS = 512, 1536, 12_288, 5
"""Of the bundled drafters. That of the 1.5B has an inner size of 1,024."""


def meta_drafter(decoder: Decoder) -> BatchDrafter:
    """A block drafter like the bundled ones, on the device of a decoder: its matrices have shapes only."""
    config = decoder.config
    sizes = {
        "features": (_SIZE, num_features(config)),
        "input": (_SIZE, config.hidden + _SIZE),
        "gate_up": (2 * _INNER, _SIZE),
        "down": (_SIZE, _INNER),
    }
    matrices = {name: torch.empty(shape, device=META) for name, shape in sizes.items()}
    head = DraftHeadWeights(matrices, torch.zeros(_WORDS, dtype=torch.long), "", {})
    tensors = {name: torch.empty(shape, device=META) for name, shape in shapes(_SIZE, _INNER, 1, _ROWS).items()}
    weights = BlockDrafterWeights(head, {**tensors, "mix": torch.ones(_ROWS, 2)})
    rows = torch.empty(_WORDS, _SIZE, device=META)
    return BatchDrafter(weights, rows, decoder.embedding, decoder.device, decoder.dtype)


def recorded_step(
    decoder: Decoder,
    drafts: int,
    batch: int = 1,
    *,
    adapter: Adapter | None = None,
    head: BatchDrafter | None = None,
    copies: int = 7,
    context: int = 1024,
    choosing: bool = False,
) -> RecordedStep:
    """A whole step on the device.

    Args:
        decoder: one whose weights have shapes only.
        choosing: whether its tokens are chosen (`TokenChoice`), and not simply the likeliest ones.
    """
    operations, selected = RecordingOperations(), (cuda_graph.select_pass, cuda_graph.select_drafter)
    model = replace(
        random_model(TINY, torch.device("cpu"), "float32"), decoder=decoder, adapter=adapter, draft_head=head
    )
    # What is checked on a GPU has no values here.
    cuda_graph.select_pass = lambda *arguments: FusedPass(*arguments[:4])
    cuda_graph.select_drafter = lambda decoder, head, *_: None if head is None else _fused(decoder, head, operations)
    try:
        runner, slab = new_runner(model, drafts, copies, context, batch, operations)
    finally:
        cuda_graph.select_pass, cuda_graph.select_drafter = selected
    step = runner.batch_step(batch, drafts, choosing=choosing)
    step.run(slab.capacity)  # what is made once is not counted
    operations.launches.clear()
    with torch.inference_mode(), CountedOperations() as others:
        step.run(slab.capacity)
    return RecordedStep(operations.launches, others.count, _most_live(operations.launches, others.allocated))


def _most_live(launches: Sequence[Launch], allocated: Mapping[int, int]) -> int:
    """The most bytes that are in use at a time, from a tensor's first launch to its last."""
    uses: dict[int, list[int]] = {}
    for number, launch in enumerate(launches):
        for tensor in launch.tensors:
            uses.setdefault(storage_of(tensor), []).append(number)
    spans = [(uses[key][0], uses[key][-1], size) for key, size in allocated.items() if key in uses]
    return max(sum(size for first, last, size in spans if first <= n <= last) for n in range(len(launches)))


def _fused(decoder: Decoder, head: BatchDrafter, operations: TritonOperations) -> FusedDrafter:
    own = TritonDrafterOperations(operations)
    table: Tensor = decoder.embedding.__self__  # type: ignore[attr-defined]
    return FusedDrafter(head, decoder.norm, decoder.config.norm_eps, table, operations, own)


def recorded_prompts(config: DecoderConfig, dtype: torch.dtype, counts: Sequence[int]) -> list[Launch]:
    """The launches of the attention of one layer over prompts of these lengths, each alone."""
    launches = list[Launch]()

    class Recorded(TritonAttention):
        def launch(self, kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
            launches.append(Launch(kernel, grid, arguments, constants))

    for count in counts:
        keys_values = torch.empty(2, 1, 1, config.kv_heads, 2048, config.head_dim, dtype=dtype, device=META)
        rows = RaggedRows(keys_values, (count,), (64,), (0,), (None,))
        Recorded()(
            torch.empty(count, config.heads, config.head_dim, dtype=dtype, device=META), *keys_values[:, 0], rows
        )
    return launches
