"""GGUF files: dequantization, and errors for damaged files."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from model.checkpoint.checkpoint import GGUFCheckpoint, open_checkpoint
from model.checkpoint.gguf import BadModelFile, GGUFFile, split_parts
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


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="reads how much memory is mapped from Linux")
def test_released_blocks_leave_memory_and_are_read_again(tmp_path: Path) -> None:
    path, values = tmp_path / "large.gguf", np.arange(1 << 19, dtype=np.float32).reshape(512, 1024)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("large", gguf.quants.quantize(values, kind := gguf.GGMLQuantizationType.Q8_0), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    def resident_kb() -> int:
        mappings = Path("/proc/self/smaps").read_text().split(str(path))[1:]
        return sum(int(part.split("Rss:")[1].split()[0]) for part in mappings)

    stored = GGUFFile(path).blocks("large")
    total = stored.blocks.sum(dtype=np.int64)
    assert resident_kb() > 500
    stored.release()
    assert resident_kb() < 100
    assert stored.blocks.sum(dtype=np.int64) == total


def test_a_split_model_is_read_like_a_whole_one(tmp_path: Path, tiny_tokenizer: Tokenizer, tiny_qwen2: Path) -> None:
    kind = gguf.GGMLQuantizationType.Q8_0
    whole = GGUFFile(write_gguf(tiny_qwen2, tmp_path / "whole.gguf", tiny_tokenizer, kind))
    first = write_gguf(tiny_qwen2, tmp_path / "split.gguf", tiny_tokenizer, kind, tensors_per_part=15)
    parts = split_parts(first)
    assert len(parts) == 3 and parts[0] == first and all(part.exists() for part in parts)
    split = GGUFFile(first)
    assert split.path == first and sorted(split.tensor_names) == sorted(whole.tensor_names)
    for name in whole.tensor_names:
        torch.testing.assert_close(split.tensor(name), whole.tensor(name))
        assert (split.blocks(name).blocks == whole.blocks(name).blocks).all()
    assert open_checkpoint(first).config == open_checkpoint(whole.path).config
    with pytest.raises(BadModelFile, match="is a later part of a split model"):
        GGUFFile(parts[1])
    parts[2].unlink()
    with pytest.raises(BadModelFile, match=r"split-00003-of-00003.gguf is missing"):
        GGUFFile(first)


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


def test_all_tokens_that_end_a_response_are_known_although_the_header_names_one(
    tmp_path: Path, tiny_tokenizer: Tokenizer, tiny_qwen2: Path
) -> None:
    path = write_gguf(tiny_qwen2, tmp_path / "whole.gguf", tiny_tokenizer, gguf.GGMLQuantizationType.F32)
    checkpoint = open_checkpoint(path)
    assert isinstance(checkpoint, GGUFCheckpoint)
    ends = {tiny_tokenizer.token_to_id(name) for name in ("<|endoftext|>", "<|im_end|>")}
    assert checkpoint.stop_tokens() == ends
    checkpoint._metadata["tokenizer.ggml.token_type"] = [1] * len(checkpoint._metadata["tokenizer.ggml.tokens"])
    assert checkpoint.stop_tokens() == {tiny_tokenizer.token_to_id("<|im_end|>")}, "the others are ordinary text"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"merges": [1, 2]}, "is damaged"),
        ({"merges": None}, "lacks the metadata 'tokenizer.ggml.merges'"),
        ({"merges": ["no such"]}, "is damaged"),
        ({"pre": ["qwen2"]}, "is damaged"),
        ({"tokens": 5}, "is damaged"),
        ({"eos_token_id": "none"}, "is damaged"),
        ({"eos_token_id": 1 << 40}, "is damaged"),
    ],
)
def test_a_tokenizer_of_other_types_is_reported(
    tmp_path: Path, tiny_tokenizer: Tokenizer, tiny_qwen2: Path, changed: dict[str, object], message: str
) -> None:
    path = write_gguf(tiny_qwen2, tmp_path / "whole.gguf", tiny_tokenizer, gguf.GGMLQuantizationType.F32)
    checkpoint = open_checkpoint(path)
    assert isinstance(checkpoint, GGUFCheckpoint)
    for name, value in changed.items():
        checkpoint._metadata[f"tokenizer.ggml.{name}"] = value
        if value is None:
            del checkpoint._metadata[f"tokenizer.ggml.{name}"]
    with pytest.raises(BadModelFile, match=message):
        assert [checkpoint.tokenizer(), checkpoint.stop_tokens(), checkpoint.template_tokens(), checkpoint.rope()]


def header(tensor: bytes, *metadata: tuple[str, bytes]) -> bytes:
    """A file with one tensor, of which everything but its name is given."""
    entries = b"".join(struct.pack("<Q", len(key)) + key.encode() + value for key, value in metadata)
    return (
        b"GGUF" + struct.pack("<IQQ", 3, 1, len(metadata)) + entries + struct.pack("<Q", 1) + b"t" + tensor + bytes(64)
    )


@pytest.mark.parametrize(
    ("tensor", "metadata", "message"),
    [
        (struct.pack("<IQQIQ", 2, 1 << 33, 1 << 33, 0, 0), (), "is cut short"),  # their product has 66 bits
        (struct.pack("<IIQ", 0, 0, 0), (), "has 0 dimensions"),
        (struct.pack("<I", 9) + bytes(90), (), "has 9 dimensions"),
        (struct.pack("<IQIQ", 1, 0, 0, 0), (), "has the shape"),
        (struct.pack("<IQIQ", 1, 7, 8, 0), (), "in blocks of 32"),
        (struct.pack("<IQIQ", 1, 4, 0, 0), (("general.alignment", struct.pack("<II", 4, 0)),), "aligns tensors to 0"),
        (b"", (("nested", struct.pack("<IIQ", 9, 9, 1)),), "an array of type 9"),
    ],
)
def test_a_header_that_lies_is_reported(
    tmp_path: Path, tensor: bytes, metadata: tuple[tuple[str, bytes], ...], message: str
) -> None:
    path = tmp_path / "lies.gguf"
    path.write_bytes(header(tensor, *metadata))
    with pytest.raises(BadModelFile, match=message):
        GGUFFile(path)
