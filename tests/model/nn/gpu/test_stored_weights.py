"""A decoder with the weights of a GGUF file in blocks computes what one with the same weights in bfloat16 does."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest
import torch
from tokenizers import Tokenizer

from model.checkpoint.checkpoint import open_checkpoint
from model.engine import loader
from model.nn.decoder import Decoder, Precision
from model.nn.gpu import stored_weights
from model.nn.gpu.block_matrix import BlockMatrix
from model.nn.gpu.stored_weights import StoredLinear
from model.nn.linear import FloatLinear
from tests.model.gguf_files import write_gguf
from tests.model.nn.pretended_gpus import pretend_gpus

CPU = torch.device("cpu")


def _decoder(path: Path, precision: Precision) -> Decoder:
    return Decoder(open_checkpoint(path), CPU, precision)


def _logits(decoder: Decoder) -> torch.Tensor:
    return decoder.forward([5, 6, 7, 8], decoder.new_cache(), logits="all")


@pytest.mark.parametrize("kind", [gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q5_0])
def test_the_logits_are_equal(
    tiny_qwen2: Path, tmp_path: Path, tiny_tokenizer: Tokenizer, kind: gguf.GGMLQuantizationType
) -> None:
    path = write_gguf(tiny_qwen2, tmp_path / "tiny.gguf", tiny_tokenizer, kind)
    stored, floats = _decoder(path, "stored"), _decoder(path, "bfloat16")
    assert isinstance(stored.layers[0].query_key_value, StoredLinear) and stored.nbytes < 0.7 * floats.nbytes
    expected = _logits(floats)
    assert torch.equal(_logits(stored), expected)
    with pytest.raises(ValueError, match="stored weights cannot be trained"):
        _ = stored.head_weight
    stored.expand_weights()
    assert stored.precision == "bfloat16" and stored.nbytes == floats.nbytes
    assert torch.equal(_logits(stored), expected) and torch.equal(stored.head_weight, floats.head_weight)


def test_other_weights_are_bfloat16(tiny_qwen2: Path, tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    """Those of a safetensors folder, and of formats that the kernels do not read."""
    path = write_gguf(tiny_qwen2, tmp_path / "tiny.gguf", tiny_tokenizer, gguf.GGMLQuantizationType.F16)
    for source in (tiny_qwen2, path):
        decoder = _decoder(source, "stored")
        assert isinstance(decoder.layers[0].down, FloatLinear) and decoder.dtype == torch.bfloat16


@pytest.mark.parametrize(("kernels", "precision"), [(object(), "stored"), (None, "bfloat16")])
def test_a_gpu_keeps_weights_as_stored_if_it_has_kernels(
    monkeypatch: pytest.MonkeyPatch, tiny_qwen2: Path, kernels: object, precision: str
) -> None:
    class Loaded(Exception):
        pass

    def decoder(checkpoint: object, device: torch.device, chosen: str, *others: object) -> None:
        raise Loaded(chosen)

    pretend_gpus(monkeypatch, (8, 0))
    monkeypatch.setattr(loader, "gpu_operations", lambda device: kernels)
    monkeypatch.setattr(loader, "Decoder", decoder)
    with pytest.raises(Loaded, match=precision):
        loader.load_model(tiny_qwen2)


def test_a_kernel_that_fails_or_is_wrong_does_not_expand_weights(caplog: pytest.LogCaptureFixture) -> None:
    def right(matrix: BlockMatrix, out: torch.Tensor) -> None:
        out.copy_(matrix.expanded(0, len(out)))

    def wrong(matrix: BlockMatrix, out: torch.Tensor) -> None:
        out.zero_()

    def failing(matrix: BlockMatrix, out: torch.Tensor) -> None:
        raise RuntimeError("Failed to find C compiler")

    assert stored_weights._is_right(right, CPU, torch.bfloat16) and not caplog.text
    assert not stored_weights._is_right(wrong, CPU, torch.bfloat16) and "expands Q4_K wrongly" in caplog.text
    assert not stored_weights._is_right(failing, CPU, torch.bfloat16) and "C compiler" in caplog.text
