"""Checkpoint folders that cannot be opened."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("config.json", {"hidden_size": "wide"}),
        ("config.json", {"hidden_size": None}),
        ("config.json", {"num_attention_heads": 0}),
        ("config.json", {"num_hidden_layers": -1}),
        ("config.json", {"vocab_size": 1 << 40}),
        ("config.json", {"max_position_embeddings": float("inf")}),
        ("config.json", {"architectures": 7}),
        ("config.json", {"layer_types": 7}),
        ("config.json", {"rope_parameters": ["default"], "rope_scaling": ["default"]}),
        ("config.json", {"head_dim": 3}),
        ("generation_config.json", {"eos_token_id": [[1]]}),
        ("model.safetensors.index.json", {}),
        ("model.safetensors.index.json", {"weight_map": 7}),
        ("model.safetensors.index.json", {"weight_map": {"model.norm.weight": 7}}),
        ("model.safetensors.index.json", {"weight_map": {"model.norm.weight": "../model.safetensors"}}),
        ("model.safetensors.index.json", {"weight_map": {"model.norm.weight": "."}}),
    ],
)
def test_a_folder_with_other_types_is_bad(tmp_path: Path, tiny_qwen2: Path, file: str, changes: dict[str, Any]) -> None:
    folder = shutil.copytree(tiny_qwen2, tmp_path / "model")
    path = folder / file
    path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **changes}))
    with pytest.raises(BadModelFile, match=r"model"):
        checkpoint = open_checkpoint(folder)
        checkpoint.rope()
        checkpoint.stop_tokens()
        checkpoint.tensor("norm.weight")


def test_a_configuration_that_nests_without_end_is_bad(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"a":' * 100_000)
    with pytest.raises(BadModelFile, match="not valid JSON"):
        open_checkpoint(tmp_path)
