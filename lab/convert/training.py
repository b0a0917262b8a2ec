"""What trainings share: steps of an optimizer until a budget is used up, a learning rate that follows it, and a state
from which an interrupted training goes on.

All random choices of a step depend only on the seed and the step's number, so an interrupted training continues exactly
as it would have. With a budget of time, the learning rate follows the clock, so that it has decayed when the time is
over.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lab.convert.saved_state import OtherPurpose, load_state, save_state

_SAVE_EVERY_S = 120.0
"""Seconds between two checkpoints: the most that a crash may cost."""


@dataclass(frozen=True)
class TrainingProgress:
    """The state after a step.

    Attributes:
        seconds: of all steps so far.
        done: share of the budget that is used.
    """

    step: int
    seconds: float
    done: float
    loss: float


class Training(ABC):
    """A training, or its continuation if `state_file` exists.

    Args:
        groups: what is trained: peak learning rates, and the parameters that have each.
        state_file: None for a training that begins again if it is interrupted.
        data: identifies what is trained on, and for what; a state of something else is not continued.
        config: a dataclass with the settings; likewise.
        steps, minutes: the budget; the one that is not None.

    Raises:
        BadModelFile: `state_file` belongs to another training, or is damaged.
    """

    _betas, _weight_decay = (0.9, 0.95), 0.0
    """Of AdamW."""
    _warm_up, _least = 0.02, 0.1
    """Of the learning rate: see `rate_factor`."""
    _starts_over = False
    """Whether a state of another training is replaced, and no error."""

    def __init__(
        self,
        groups: Sequence[tuple[float, Sequence[Tensor]]],
        state_file: Path | None,
        data: Mapping[str, str],
        config: Any,
        *,
        steps: int | None,
        minutes: float | None = None,
    ) -> None:
        self._parameters = [parameter.requires_grad_() for _, group in groups for parameter in group]
        self._rates = [rate for rate, _ in groups]
        self._optimizer = torch.optim.AdamW(
            [{"params": [*group]} for _, group in groups], betas=self._betas, weight_decay=self._weight_decay
        )
        self._steps, self._minutes, self._state_file = steps, minutes, state_file
        self._step, self._seconds = 0, 0.0
        self._purpose = {**data, **asdict(config)}
        if state_file is not None and state_file.exists():
            defaults = asdict(type(config)())  # of settings that were added after a state was saved
            try:
                self._restore(load_state(state_file, self._purpose, defaults, self._parameters[0].device))
            except OtherPurpose:
                if not self._starts_over:
                    raise

    @abstractmethod
    def _add_gradients(self) -> float:
        """Compute the loss of the next step and its gradients; returns the loss."""

    def run(
        self,
        on_progress: Callable[[TrainingProgress], None] = lambda progress: None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Train, and save the state every two minutes and at the end.

        Args:
            is_over: asked before each step; if so, the training is saved and stops.

        Returns:
            Whether the training is finished.
        """
        saved_s = self._seconds
        while self._done() < 1 and not is_over():
            started = time.monotonic()
            loss = self._take_step()
            self._seconds += time.monotonic() - started
            on_progress(TrainingProgress(self._step, round(self._seconds, 1), min(self._done(), 1.0), round(loss, 4)))
            if self._seconds - saved_s >= _SAVE_EVERY_S:
                self._save()
                saved_s = self._seconds
        self._save()
        return self._done() >= 1

    def _done(self) -> float:
        """Share of the budget that is used."""
        return self._seconds / (60 * (self._minutes or 0.001)) if self._steps is None else self._step / self._steps

    def _take_step(self) -> float:
        factor = rate_factor(self._done(), self._warm_up, self._least)
        loss = self._add_gradients()
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * factor
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._step += 1
        return loss

    def _save(self) -> None:
        if self._state_file is not None:
            save_state(self._state_file, self._purpose, self._state())

    def _state(self) -> dict[str, Any]:
        return {
            "parameters": self._parameters, "optimizer": self._optimizer.state_dict(), "step": self._step,
            "seconds": self._seconds,
        }  # fmt: skip

    def _restore(self, state: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for parameter, value in zip(self._parameters, state["parameters"], strict=True):
                parameter.copy_(value)
        self._optimizer.load_state_dict(state["optimizer"])
        self._step, self._seconds = state["step"], state["seconds"]


def rate_factor(done: float, warm_up: float, least: float) -> float:
    """Warm-up over a share of the budget, then cosine decay to the least share of the learning rate."""
    if done < warm_up:
        return max(done / warm_up, warm_up)
    return least + (1 - least) / 2 * (1 + math.cos(math.pi * min(1.0, (done - warm_up) / (1 - warm_up))))
