"""CUDA graph runners for stages that compare or time their steps."""

from __future__ import annotations

from model.engine.cuda_graph import CUDAGraphRunner, slot_capacity
from model.engine.loader import LoadedModel
from model.nn.batch_drafter import BatchDrafter
from model.nn.gpu.operations import Operations
from model.nn.kv_slab import KeyValueSlab


def new_runner(
    model: LoadedModel,
    drafts: int,
    copies: int,
    context: int,
    num_slots: int = 1,
    operations: Operations | None = None,
) -> tuple[CUDAGraphRunner, KeyValueSlab]:
    """A runner that has captured nothing yet, and the slots of its conversations. The model's draft head drafts, or its
    adapter, as in the engine."""
    decoder, head = model.decoder, model.draft_head if isinstance(model.draft_head, BatchDrafter) else None
    capacity = slot_capacity(context, drafts, copies, branches=head is None)
    slab = KeyValueSlab(decoder.config, decoder.dtype, decoder.device, num_slots, capacity)
    return CUDAGraphRunner(decoder, model.adapter, drafts, slab, copies, operations, head=head), slab
