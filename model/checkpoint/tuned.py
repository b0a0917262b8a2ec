"""Which weights a tuned model was tuned from, so that what was made for those can be used with it: drafts, classifiers
and thresholds. `lab/convert/write_tuned.py` writes such a model."""

from __future__ import annotations

import json
import re
from pathlib import Path

KEY = "rejoinder.tuned_from"
"""Metadata of a GGUF file, or a key of `config.json`: sha256 of the weights that a model was tuned from."""

_IN_GGUF = re.compile(re.escape(KEY.encode()) + b".{12}([0-9a-f]{64})", re.DOTALL)
"""The key, the type and the length of its value, and the value."""

_HEADER_BYTES = 4096
"""Where the key is in a GGUF file: it is written first, because the vocabulary takes 0.3 s to read."""


def tuned_from(path: Path) -> str | None:
    """sha256 of the weights that a model was tuned from; None if it was not tuned by `write_tuned`."""
    if path.is_dir():
        try:
            settings = json.loads((path / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None  # opening the checkpoint says what is wrong
        return settings.get(KEY) if isinstance(settings, dict) else None
    with path.open("rb") as file:
        match = _IN_GGUF.search(file.read(_HEADER_BYTES))
    return None if match is None else match[1].decode()
