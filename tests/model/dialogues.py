"""Messages for tests of the engine, and helpers that collect its responses."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from safetensors.torch import load_file, save_file

from chat.progress import Progress
from chat.types import Ask, Message
from model.engine.conversation import Conversation
from model.engine.engine import Engine
from model.nn.forward_batch import ForwardInput
from tests.real_time import HANG_S

T = TypeVar("T")

SYSTEM = Message("system", "the capital of France")
HELLO = Message("user", "hello to you")


def drafted_tokens(inputs: ForwardInput) -> list[int]:
    """The drafts or copied tokens of a step without prompt. Rows after them are other choices: these do not attend to
    all rows before them."""
    causal = [bool(row[:n].all()) for n, row in enumerate(inputs.attention_mask)]
    return list(inputs.tokens)[1 : [*causal, False].index(False)]


async def collect_progress(conversation: Conversation, *messages: Message, **options: object) -> list[Progress]:
    """Run a reply to its end and return every progress."""
    return [progress async for progress in conversation.reply(Ask(messages, **options))]  # type: ignore[arg-type]


def committed_text(progresses: list[Progress]) -> str:
    """All committed text."""
    return "".join(progress.committed for progress in progresses)


@contextmanager
def held(engine: Engine) -> Iterator[None]:
    """Keep the engine's thread busy, so that all requests made meanwhile arrive before the same forward pass, however
    late a busy machine makes them."""
    holding, released = threading.Event(), threading.Event()

    def hold(model: object) -> None:
        holding.set()
        released.wait(HANG_S)

    holder = threading.Thread(target=engine.call, args=(hold,))
    holder.start()
    holding.wait(HANG_S)
    try:
        yield
    finally:
        released.set()
        holder.join()


async def at_the_same_time(engine: Engine, *responses: Coroutine[Any, Any, T]) -> list[T]:
    """Run responses whose requests arrive before the same forward pass."""
    with held(engine):
        tasks = [asyncio.create_task(response) for response in responses]
        await asyncio.sleep(0)  # each submits its request
    return await asyncio.gather(*tasks)


def with_doubled_weights(folder: Path, target: Path) -> Path:
    """Copy a tiny checkpoint with its matrices doubled. The original repeats one token, so two texts would be equal
    even if something went wrong; with doubled matrices the text varies."""
    shutil.copytree(folder, target, dirs_exist_ok=True)
    weights = load_file(target / "model.safetensors")
    save_file({name: w * 2 if w.dim() == 2 else w for name, w in weights.items()}, target / "model.safetensors")
    return target
