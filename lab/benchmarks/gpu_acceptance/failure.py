"""A planted error inside a kernel: every request must fail with a clear message, and the engine must end. The error
makes the device unusable for this process, so nothing else can be checked here. A CPU only passes for unusable."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import torch

from lab.benchmarks.gpu_acceptance.answers import HANG_S, answer, holds, running
from lab.benchmarks.gpu_acceptance.context import Context
from lab.benchmarks.gpu_acceptance.random_models import TINY, random_model
from model.engine import engine as engine_module
from model.engine.conversation import Conversation
from model.engine.engine import DeviceFailed, Engine
from model.engine.loader import LoadedModel


def run(context: Context) -> None:
    """Run the stage."""
    context.check("a CUDA error ends the engine with a message", lambda: planted_error(context))
    sys.stdout.flush()
    os._exit(0)  # the usual end of a process calls CUDA, which fails now


def planted_error(context: Context) -> dict[str, Any]:
    """A conversation is being answered when another request reads outside a table."""

    def read_outside(model: LoadedModel) -> float:
        table = torch.zeros(4, device=model.decoder.device)
        return float(table[torch.tensor([1 << 20], device=model.decoder.device)].sum())

    failed = patch.object(engine_module, "device_failed", lambda device: True)
    model = random_model(TINY, context.device, "float32")
    with nullcontext() if context.on_gpu else failed, running(model, max_slots=2) as engine:
        outcomes = asyncio.run(asyncio.wait_for(_outcomes(engine, read_outside), HANG_S))
        holds(all(isinstance(o, DeviceFailed) for o in outcomes), lambda: f"requests ended with {outcomes}")
        holds(engine.failure.done(), lambda: "the engine did not end")
        return {"message": str(engine.failure.result())}


async def _outcomes(engine: Engine, read_outside: Any) -> list[object]:
    """How the answer, the wrong request and a later one end."""
    answering = asyncio.create_task(answer(Conversation(engine), "hello", 900))
    await asyncio.sleep(0.01)
    wrong = asyncio.create_task(asyncio.to_thread(engine.call, read_outside))
    ended = await asyncio.gather(answering, wrong, return_exceptions=True)
    later = await asyncio.gather(answer(Conversation(engine), "hello", 5), return_exceptions=True)
    return [*ended, *later]
