"""What the commands that train share: the model, `--stop-after`, and how they show their progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from cli.console import stderr, stdout
from lab.convert.training import TrainingProgress
from model.engine.loader import LoadedModel, load_model
from model.nn.decoder import Precision
from model.nn.device import find_device
from server.serving.runtime import locate_model

StopAfterOption = Annotated[
    float | None,
    typer.Option(min=0.01, help="Stop after this many minutes; the same command continues later."),
]


def load_base(model: str, device: str, precision: Precision | None = None) -> tuple[LoadedModel, Path]:
    """A model to train something for, without what was trained for it before, and its path."""
    path = locate_model(model, stderr)
    if precision is None and find_device(device).type == "cuda":
        precision = "bfloat16"  # what is trained needs float weights
    loaded = load_model(
        path, device=device, precision=precision, adapter="none", turn_completion="none", request_classifier="none",
        call_gate="none",
    )  # fmt: skip
    return loaded, path


def over_after(minutes: float | None) -> Callable[[], bool]:
    """Whether this much time has passed since the call; never for None."""
    end = math.inf if minutes is None else time.monotonic() + 60 * minutes
    return lambda: time.monotonic() >= end


def print_stopped(minutes: float | None) -> None:
    """Say that the command stopped, and how to continue."""
    stdout.print(f"stopped after {minutes:g} minutes, and saved: run the same command to continue")


def training_reporter(progress: Progress) -> Callable[[TrainingProgress], None]:
    """Shows how a training goes on."""
    task = progress.add_task("training", total=1.0)

    def report(state: TrainingProgress) -> None:
        progress.update(task, completed=state.done, description=f"training, loss {state.loss:.2f}")

    return report
