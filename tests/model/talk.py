"""What tests of the engine say, and how they collect what is answered."""

from __future__ import annotations

import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

from model.answer import Progress
from model.chat import TextMessage
from model.conversation import Conversation

SYSTEM = TextMessage("system", "the capital of France")
HELLO = TextMessage("user", "hello to you")


async def all_of(conversation: Conversation, *messages: TextMessage, **options: object) -> list[Progress]:
    """Every progress of a reply."""
    return [progress async for progress in conversation.reply(messages, **options)]  # type: ignore[arg-type]


def text_of(progresses: list[Progress]) -> str:
    """What was committed."""
    return "".join(progress.committed for progress in progresses)


def livelier(folder: Path, other: Path) -> Path:
    """A tiny checkpoint with its matrices doubled. As it is made it says one token again and again, and texts that
    should be the same would be, whatever went wrong; doubled it says something new most of the time."""
    shutil.copytree(folder, other, dirs_exist_ok=True)
    weights = load_file(other / "model.safetensors")
    save_file({name: w * 2 if w.dim() == 2 else w for name, w in weights.items()}, other / "model.safetensors")
    return other
