"""GGUF files: dequantization, and errors for damaged files."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch
from tokenizers import Tokenizer

from model.checkpoint.checkpoint import open_checkpoint
from model.checkpoint.gguf import BadModelFile
from model.nn.cpu.block_formats import FORMATS, dequantize
from model.nn.decoder import Decoder
from tests.conftest import save_tiny_checkpoint
from tests.model.gguf_files import write_gguf


def test_quantized_tensors_are_dequantized_as_by_gguf_py(
    tmp_path: Path, tiny_tokenizer: Tokenizer, tiny_qwen2: Path
) -> None:
    kind = gguf.GGMLQuantizationType.Q8_0
    path = write_gguf(tiny_qwen2, tmp_path / "tiny.gguf", tiny_tokenizer, kind)
    checkpoint = open_checkpoint(path)
    (tensor,) = [t for t in gguf.GGUFReader(path).tensors if t.name == "blk.1.ffn_up.weight"]
    expected = torch.from_numpy(gguf.quants.dequantize(tensor.data, tensor.tensor_type))
    torch.testing.assert_close(checkpoint.tensor("layers.1.mlp.up_proj.weight"), expected)


@pytest.mark.parametrize("family", ["qwen2", "llama"])
def test_stored_blocks_are_the_rows_of_the_tensor(tmp_path: Path, tiny_tokenizer: Tokenizer, family: str) -> None:
    """In the order that Hugging Face stores them: llama.cpp permutes the query and key rows of Llama."""
    folder = save_tiny_checkpoint(tmp_path, tiny_tokenizer, family)
    path = write_gguf(folder, tmp_path / "tiny.gguf", tiny_tokenizer, gguf.GGMLQuantizationType.Q8_0)
    checkpoint, name = open_checkpoint(path), "layers.1.self_attn.q_proj.weight"
    stored = checkpoint.blocks(name)
    assert stored is not None and (stored.format, stored.shape) == ("Q8_0", (64, 64))
    torch.testing.assert_close(torch.from_numpy(dequantize(FORMATS["Q8_0"], stored.blocks)), checkpoint.tensor(name))
    assert open_checkpoint(folder).blocks(name) is None
    with pytest.raises(BadModelFile, match="has no tensor"):
        checkpoint.blocks("layers.9.self_attn.q_proj.weight")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda data: b"", "is empty"),
        (lambda data: b"PK\x03\x04" + data[4:], "is not a GGUF file"),
        (lambda data: data[:4] + b"\x09" + data[5:], "is GGUF version 9"),
        (lambda data: data[: len(data) // 2], "cut short"),
        (lambda data: data[:200], "cut short or damaged"),
    ],
)
def test_a_damaged_gguf_is_rejected_with_a_clear_error(
    tmp_path: Path, tiny_tokenizer: Tokenizer, tiny_qwen2: Path, damage: object, message: str
) -> None:
    whole = write_gguf(tiny_qwen2, tmp_path / "whole.gguf", tiny_tokenizer, gguf.GGMLQuantizationType.F32)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(damage(whole.read_bytes()))  # type: ignore[operator]
    with pytest.raises(BadModelFile, match=message):
        Decoder(open_checkpoint(broken), torch.device("cpu"), "float32")
