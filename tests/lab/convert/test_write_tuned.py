"""A tuned checkpoint has the updates merged, everything else as it was, and says what it was tuned from."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

from lab.convert.write_tuned import Updates, write_tuned
from model.checkpoint.checkpoint import open_checkpoint
from model.checkpoint.gguf import GGUFFile
from model.checkpoint.tuned import tuned_from
from tests.conftest import save_tiny_checkpoint
from tests.model.gguf_files import write_gguf

BASE = "ab" * 32


def updates_of(path: Path) -> Updates:
    """Updates of a query and a down projection."""
    checkpoint, draw = open_checkpoint(path), torch.Generator().manual_seed(3)
    names = ("layers.0.self_attn.q_proj.weight", "layers.2.mlp.down_proj.weight")
    shapes = {name: checkpoint.tensor(name).shape for name in names}
    return {
        name: (torch.randn(rows, 2, generator=draw), torch.randn(2, columns, generator=draw))
        for name, (rows, columns) in shapes.items()
    }


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_a_gguf_file_is_merged_as_q8_0_and_keeps_the_rest(
    family: str, tiny_tokenizer: Tokenizer, tmp_path: Path
) -> None:
    folder = save_tiny_checkpoint(tmp_path / "base", tiny_tokenizer, family)
    base = write_gguf(folder, tmp_path / "base.gguf", tiny_tokenizer, gguf.GGMLQuantizationType.Q4_0)
    updates = updates_of(base)
    path = write_tuned(open_checkpoint(base), updates, BASE, tmp_path)
    before, after = open_checkpoint(base), open_checkpoint(path)
    assert (tuned_from(base), tuned_from(path)) == (None, BASE)
    assert GGUFFile(path).metadata == {**GGUFFile(base).metadata, "rejoinder.tuned_from": BASE}
    for name, (b, a) in updates.items():
        merged = before.tensor(name) + b @ a
        torch.testing.assert_close(after.tensor(name), merged, atol=float(merged.abs().max()) / 200, rtol=0)
    untouched = "layers.1.mlp.down_proj.weight", "layers.0.self_attn.k_proj.weight", "embed_tokens.weight"
    assert all(torch.equal(before.tensor(name), after.tensor(name)) for name in untouched)
    stored = after.blocks("layers.0.self_attn.q_proj.weight")
    assert stored is not None and stored.format == "Q8_0"


def test_a_split_gguf_file_becomes_one(tiny_qwen2: Path, tiny_tokenizer: Tokenizer, tmp_path: Path) -> None:
    parts = write_gguf(tiny_qwen2, tmp_path / "base.gguf", tiny_tokenizer, gguf.GGMLQuantizationType.Q8_0, 10)
    tuned = write_tuned(open_checkpoint(parts), updates_of(parts), BASE, tmp_path / "out")
    assert sorted(GGUFFile(tuned).tensor_names) == sorted(GGUFFile(parts).tensor_names)
    assert not any(key.startswith("split.") for key in GGUFFile(tuned).metadata)


def test_a_folder_is_merged_in_its_own_dtype(tiny_qwen2: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    for file in tiny_qwen2.iterdir():
        (base / file.name).write_bytes(file.read_bytes())
    weights = {name: tensor.bfloat16() for name, tensor in load_file(base / "model.safetensors").items()}
    save_file(weights, base / "model.safetensors")
    updates = updates_of(base)
    for _ in range(2):  # the second replaces the first
        path = write_tuned(open_checkpoint(base), updates, BASE, tmp_path / "out")
    assert (tuned_from(base), tuned_from(path)) == (None, BASE)
    assert sorted(file.name for file in path.iterdir()) == sorted(file.name for file in base.iterdir())
    tuned = load_file(path / "model.safetensors")
    assert {tensor.dtype for tensor in tuned.values()} == {torch.bfloat16}
    for name, weight in weights.items():
        b, a = updates.get(name.removeprefix("model."), (None, None))
        expected = weight if b is None or a is None else (weight.float() + b @ a).bfloat16()
        assert torch.equal(tuned[name], expected)
    assert open_checkpoint(path).tokenizer().encode("hello") == open_checkpoint(base).tokenizer().encode("hello")
