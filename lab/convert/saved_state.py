"""States of interrupted work: what `rejoinder convert` saves now and then, and goes on from when it is run again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from model.checkpoint.gguf import BadModelFile
from model.hub.store import write_atomically


class OtherPurpose(BadModelFile):
    """A state was saved for another purpose. The message names what differs."""


def save_state(path: Path, purpose: Mapping[str, Any], state: Mapping[str, Any]) -> None:
    """Write tensors and plain values to a file, atomically.

    Args:
        purpose: what the work is for; a state is only continued for the same purpose.
    """
    write_atomically(path, lambda partial: torch.save({**state, "purpose": dict(purpose)}, partial))


def load_state(
    path: Path, purpose: Mapping[str, Any], defaults: Mapping[str, Any], device: torch.device
) -> dict[str, Any]:
    """The state that `save_state` wrote, with its tensors on `device`.

    Args:
        defaults: of what a purpose that was saved earlier may lack.

    Raises:
        BadModelFile: the file is damaged.
        OtherPurpose: it was saved for something else.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
        saved = {**defaults, **state.pop("purpose")}
    except Exception as error:  # torch.load raises whatever unpickling raises
        raise BadModelFile(f"{path} cannot be read ({error}): remove it to start over") from None
    differing = ", ".join(sorted(name for name in purpose if saved.get(name) != purpose[name]))
    if differing:
        raise OtherPurpose(
            f"{path} was saved with other settings ({differing}): use the same ones, choose another folder, or remove "
            "it to start over"
        )
    return state
