"""Adapters are saved and loaded, and rejected for other weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.checkpoint.checkpoint import open_checkpoint
from model.checkpoint.gguf import BadModelFile
from model.nn.adapter import load_adapter, random_adapter


def test_an_adapter_is_loaded_as_saved_and_rejected_for_other_weights(tmp_path: Path, tiny_qwen2: Path) -> None:
    config = open_checkpoint(tiny_qwen2).config
    adapter = random_adapter(config, 4, 3, seed=0)
    path = tmp_path / "adapter.safetensors"
    replace(adapter, base="abc", metadata={"seed": "0"}).save(path)
    loaded = load_adapter(path, config, "abc")
    assert (loaded.num_drafts, loaded.metadata["seed"]) == (3, "0")
    torch.testing.assert_close(loaded.layers[1]["up"].a, adapter.layers[1]["up"].a, atol=0.01, rtol=0.01)
    with pytest.raises(BadModelFile, match="made for weights with sha256 abc, and these have def"):
        load_adapter(path, config, "def")
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(BadModelFile, match="cannot be read"):
        load_adapter(path, config, "abc")
    with pytest.raises(BadModelFile, match="cannot be read"):
        load_adapter(tmp_path / "none", config, "abc")
