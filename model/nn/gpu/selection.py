"""Which forward pass runs the steps of a conversation: the kernels' on a GPU with Triton, if they compute there what
plain PyTorch does, and plain PyTorch's otherwise."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

import torch
from torch import Tensor

from model.nn.adapter import Adapter
from model.nn.decoder import Decoder
from model.nn.device import is_ampere_or_newer
from model.nn.gpu.fused_pass import FusedPass
from model.nn.gpu.operations import Operations
from model.nn.gpu.torch_operations import TorchOperations
from model.nn.step_pass import MaskedPass, Predictions, StepPass, StepShape

_log = logging.getLogger("rejoinder.model")

_MAX_ERROR = {torch.bfloat16: 5e-2, torch.float32: 1e-3}
"""The largest relative difference of keys and values after all layers that different orders of sums explain. A wrong
kernel differs by 1 and more."""

_CHECKED_TOKENS = 300
"""Earlier tokens of the step that is checked: its attention merges parts."""


def gpu_operations(device: torch.device) -> Operations | None:
    """The Triton kernels; None without Triton, with `REJOINDER_TRITON=0` in the environment, and on a device that they
    were not written for."""
    if not is_ampere_or_newer(device) or os.environ.get("REJOINDER_TRITON") == "0":
        return None
    try:
        from model.nn.gpu.triton_operations import TritonOperations
    except ImportError as error:
        _log.warning("without Triton a GPU is slower, because every step starts more kernels (%s)", error)
        return None
    return TritonOperations(device)


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
        return MaskedPass(decoder, adapter, shape)
    try:
        kernels = FusedPass(decoder, adapter, shape, operations)
        twin = FusedPass(decoder, adapter, shape, TorchOperations(), kernels.layers)
        error = max(
            _difference(decoder, checked, kernels.with_shape(checked), twin.with_shape(checked))
            for checked in (shape, *also)
        )
        if error <= _MAX_ERROR[decoder.dtype]:
            return kernels
        reason = f"their results differ from PyTorch's by {error:.1e}"
    except Exception as problem:  # of Triton, its compiler, the driver
        reason = (str(problem).splitlines() or [type(problem).__name__])[0]
    _log.warning("the Triton kernels cannot be used here, so responses take longer: %s", reason)
    return MaskedPass(decoder, adapter, shape)


@torch.inference_mode()
def _difference(decoder: Decoder, shape: StepShape, one: StepPass, other: StepPass) -> float:
    """The relative difference of what two passes compute for a step of random tokens. Leaves the slots empty."""
    keys_values, rows = shape.keys_values, shape.rows_each
    past = min(_CHECKED_TOKENS, shape.capacity - rows, decoder.config.context_length - rows)
    draw, device = torch.Generator().manual_seed(0), decoder.device
    tokens = torch.randint(0, decoder.config.vocab_size, (shape.num_rows,), generator=draw).to(device)
    slots = torch.arange(shape.batch, device=device)
    past_length = torch.full_like(slots, past)
    earlier = torch.randn(keys_values[:, :, : shape.batch, :, :past].shape, generator=draw).to(keys_values)
    positions = shape.places(past_length, slots).cells

    def run(step: StepPass) -> tuple[Predictions, Tensor]:
        keys_values.zero_()
        keys_values[:, :, : shape.batch, :, :past] = earlier
        states = step.states(decoder.embedding(tokens), positions, past_length, slots, shape.capacity)
        written = keys_values[:, :, : shape.batch, :, past : past + rows].float().clone()
        return step.predict(states), written

    try:
        (predicted, written), (expected, expected_written) = run(one), run(other)
    finally:
        keys_values.zero_()
    error = (written - expected_written).norm() / expected_written.norm()
    farthest = (predicted.confidence - expected.confidence).abs().max()
    found = float(torch.maximum(error, farthest))
    return found if found == found else float("inf")  # NaN is wrong, too
