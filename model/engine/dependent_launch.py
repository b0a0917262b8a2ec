"""Whether steps whose kernels overlap (programmatic dependent launch) leave what steps leave without: kernels that are
started one at a time cannot show that, so whole replayed steps are compared."""

from __future__ import annotations

from typing import Protocol

import torch

from model.engine.batch_step import BatchStep
from model.engine.device_state import DeviceState

_PAST, _STEPS = 300, 16
"""Earlier tokens of the conversation, and how many steps are compared."""


class DependentOperations(Protocol):
    """Kernels that may overlap: see `TritonOperations.dependent`."""

    dependent: bool


@torch.inference_mode()
def replay_agrees(step: BatchStep, state: DeviceState, operations: DependentOperations, bucket: int) -> bool:
    """Replay steps of one conversation with overlapping kernels, and run the same steps without. Leaves the slots
    empty, and the operations as they were.

    Args:
        step: of one conversation, not yet captured.
        bucket: see `BatchStep.launch`.
    """
    parts, left = (*state.parts, state.keys_values), []
    past = min(_PAST, max(1, bucket - (_STEPS + 1) * step.num_rows))
    try:
        for dependent in (True, False):
            operations.dependent = dependent
            if dependent:
                step.capture(bucket, None)
            draw = torch.Generator().manual_seed(0)
            for part in parts:
                part.zero_()
            state.keys_values.copy_(torch.randn(state.keys_values.shape, generator=draw))
            state.past_length[0], state.last[0], state.drafting[0] = past, 1, True
            step.set_members([0])
            for _ in range(_STEPS):
                if dependent:
                    step.launch(bucket)
                else:
                    step.run(bucket)
            left.append([part.clone() for part in parts])
    finally:
        operations.dependent = True
        for part in parts:
            part.zero_()
    return all(torch.equal(one, other) for one, other in zip(*left, strict=True))
