"""Checkpoint folders that cannot be opened."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.checkpoint.checkpoint import open_checkpoint
from model.checkpoint.gguf import BadModelFile


def test_a_folder_of_an_unknown_family_is_rejected_and_the_known_ones_listed(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "mamba"}')
    with pytest.raises(BadModelFile, match=r"is a mamba model; known families are llama, qwen2, qwen3, .*sdar"):
        open_checkpoint(tmp_path)


def test_a_folder_without_weights_is_rejected(tmp_path: Path, tiny_qwen2: Path) -> None:
    (tmp_path / "config.json").write_text((tiny_qwen2 / "config.json").read_text())
    with pytest.raises(BadModelFile, match=r"neither model\.safetensors nor an index"):
        open_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x10\x00\x00\x00nonsense")
    with pytest.raises(BadModelFile, match="damaged"):
        open_checkpoint(tmp_path)
