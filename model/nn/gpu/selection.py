"""Which forward pass runs the steps of a conversation, and what drafts in them: the kernels on a GPU with Triton, if
they compute there what plain PyTorch does, and plain PyTorch otherwise."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from model.nn.adapter import Adapter
from model.nn.batch_drafter import BatchDrafter
from model.nn.cuda import first_line
from model.nn.decoder import Decoder
from model.nn.device import is_ampere_or_newer
from model.nn.forward_batch import feature_layers
from model.nn.gpu.agreement import ComparedDrafterOperations, ComparedOperations
from model.nn.gpu.fused_drafter import FusedDrafter
from model.nn.gpu.fused_pass import FusedPass
from model.nn.gpu.operations import Operations
from model.nn.step_pass import MaskedPass, StepPass, StepShape

if TYPE_CHECKING:
    from model.nn.gpu.triton_operations import TritonOperations

_log = logging.getLogger("rejoinder.model")

_CHECKED_TOKENS = 300
"""Earlier tokens of the step that is checked: its attention merges parts."""


_CHECKED_CONVERSATIONS = 16
"""Conversations that are drafted for together when the drafter is checked: with fewer, a tie would decide."""

_UNIT = 1_000_000
"""Parts that probabilities are stored in."""


def gpu_operations(device: torch.device) -> Operations | None:
    """The Triton kernels; None without Triton, with `REJOINDER_TRITON=0` in the environment, and on a device that they
    were not written for. With `REJOINDER_DEPENDENT_LAUNCH=1` they overlap."""
    if not is_ampere_or_newer(device) or os.environ.get("REJOINDER_TRITON") == "0":
        return None
    try:
        from model.nn.gpu.triton_operations import TritonOperations
    except ImportError as error:
        _log.warning("without Triton a GPU is slower, because every step starts more kernels (%s)", error)
        return None
    return TritonOperations(device, dependent=os.environ.get("REJOINDER_DEPENDENT_LAUNCH") == "1")


def select_pass(
    decoder: Decoder,
    adapter: Adapter | None,
    shape: StepShape,
    operations: Operations | None,
    also: Sequence[StepShape] = (),
) -> StepPass:
    """The forward pass with these operations if they are given and compute what plain PyTorch does. They are checked
    here, because a kernel that compiles for one GPU may fail on another one or be wrong there.

    Args:
        also: other shapes that they must be right for.
    """
    if operations is None:
        if adapter is not None:
            decoder.expand_weights()  # only float weights are stacked with an adapter's
        return MaskedPass(decoder, adapter, shape)
    try:
        kernels = FusedPass(decoder, adapter, shape, operations)
        step = FusedPass(decoder, adapter, shape, ComparedOperations(operations), kernels.layers)
        for checked in (shape, *also):
            _run_random_step(decoder, checked, step.with_shape(checked))
        return kernels
    except Exception as problem:  # of Triton, its compiler, the driver, or wrong results
        reason = first_line(problem)
    _log.warning("the Triton kernels cannot be used here, so responses take longer: %s", reason)
    decoder.expand_weights()
    return MaskedPass(decoder, adapter, shape)


def select_drafter(
    decoder: Decoder, head: BatchDrafter | None, operations: Operations | None, num_slots: int, max_drafts: int
) -> FusedDrafter | None:
    """The block drafter with these operations if they are Triton's and compute what plain PyTorch does. None otherwise:
    then `BatchDrafter.draft_batch` drafts."""
    table = getattr(decoder.embedding, "__self__", None)
    if head is None or not head.block or not hasattr(operations, "launch") or not isinstance(table, Tensor):
        return None
    try:
        from model.nn.gpu.triton_drafter import TritonDrafterOperations  # late: Triton may be missing

        own = TritonDrafterOperations(cast("TritonOperations", operations))
        model = (head, decoder.norm, decoder.config.norm_eps, table)
        assert operations is not None, "it has `launch`"
        compared = FusedDrafter(*model, ComparedOperations(operations), ComparedDrafterOperations(own))
        for batch in {_CHECKED_CONVERSATIONS, max(_CHECKED_CONVERSATIONS, num_slots)}:
            _draft_randomly(decoder, compared, batch, max_drafts)
        return FusedDrafter(*model, operations, own)
    except Exception as problem:  # of Triton, its compiler, the driver, or wrong results
        reason = first_line(problem)
    _log.warning("the kernels that draft cannot be used here, so responses take longer: %s", reason)
    return None


@torch.inference_mode()
def _draft_randomly(decoder: Decoder, drafter: FusedDrafter, batch: int, count: int) -> None:
    """Drafts after random states and tokens."""
    config, draw = decoder.config, torch.Generator().manual_seed(0)
    states = torch.randn(len(feature_layers(config)) + 1, 2 * batch, config.hidden, generator=draw)
    *tapped, last = states.to(decoder.device, decoder.dtype)
    rows = torch.randperm(2 * batch, generator=draw)[:batch].to(decoder.device)
    tokens = torch.randint(0, config.vocab_size, (batch,), generator=draw).to(decoder.device)
    slots = torch.randperm(batch, generator=draw).to(decoder.device)
    kept, result = tokens.new_zeros(batch, count), tokens.new_zeros(batch, 3 + 2 * count)
    drafter.draft(tapped, last, rows, tokens, slots, kept, result, count, _UNIT)


@torch.inference_mode()
def _run_random_step(decoder: Decoder, shape: StepShape, step: StepPass) -> None:
    """A step of random tokens after random keys and values. Leaves the slots empty."""
    keys_values, rows = shape.keys_values, shape.rows_each
    past = min(_CHECKED_TOKENS, shape.capacity - rows, decoder.config.context_length - rows)
    draw, device = torch.Generator().manual_seed(0), decoder.device
    tokens = torch.randint(0, decoder.config.vocab_size, (shape.num_rows,), generator=draw).to(device)
    slots = torch.arange(shape.batch, device=device)
    past_length = (past - slots).clamp(min=0)
    positions = torch.randint(0, past + rows, (shape.num_rows,), generator=draw).to(device)
    earlier = keys_values[:, :, : shape.batch, :, :past]
    try:
        keys_values.zero_()
        earlier.copy_(torch.randn(earlier.shape, generator=draw))
        step.predict(step.states(decoder.embedding(tokens), positions, past_length, slots, shape.capacity))
    finally:
        keys_values.zero_()
