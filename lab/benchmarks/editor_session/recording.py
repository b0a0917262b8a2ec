"""The requests that llama.vscode sent while somebody typed, as `record.py` has recorded them."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORDING = Path(__file__).with_name("recording.jsonl.xz")


@dataclass(frozen=True)
class EditorRequest:
    """One request to `/infill`.

    Attributes:
        kind: `context`, which reads another file ahead; `moved`, the first one after the cursor has moved to another
            line; `typing`; or `ahead`, for what follows a suggestion if it is accepted.
    """

    kind: str
    body: dict[str, Any]


def editor_requests(path: Path = RECORDING) -> Iterator[EditorRequest]:
    """The requests of a session, in order."""
    with lzma.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield EditorRequest(**json.loads(line))
