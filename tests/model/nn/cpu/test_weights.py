"""Weights are packed once and read from disk afterwards; what a GGUF file stores in blocks is not rounded again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from model.checkpoint.checkpoint import open_checkpoint
from model.nn.cpu import weights
from model.nn.cpu.weights import quantize_q8_0
from model.nn.decoder import Decoder


def test_packed_weights_are_cached_and_a_damaged_file_is_written_again(
    tmp_path: Path, tiny_qwen2: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(weights, "_MIN_CACHED_BYTES", 0)
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path))

    def logits() -> torch.Tensor:
        decoder = Decoder(open_checkpoint(tiny_qwen2), torch.device("cpu"), "int8")
        return decoder.forward([1, 2, 3], decoder.new_cache(), logits="all")

    first = logits()
    (file,) = (tmp_path / "packed").glob("*.safetensors")
    written_ns = file.stat().st_mtime_ns
    assert torch.equal(logits(), first)
    assert file.stat().st_mtime_ns == written_ns
    file.write_bytes(b"nonsense")
    assert torch.equal(logits(), first)
    assert file.stat().st_size > 1000
    assert "is damaged" in caplog.text
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"Q8_0 ", b"Q8_1 ", 3))  # of some matrices only
    assert torch.equal(logits(), first)
    assert file.read_bytes() == whole


def test_a_full_disk_costs_the_next_start_only(
    tmp_path: Path, tiny_qwen2: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(weights, "_MIN_CACHED_BYTES", 0)
    (tmp_path / "packed").write_text("a file where the folder should be")
    monkeypatch.setenv("REJOINDER_CACHE", str(tmp_path))
    decoder = Decoder(open_checkpoint(tiny_qwen2), torch.device("cpu"), "int8")
    assert decoder.forward([1], decoder.new_cache(), logits="last").isfinite().all()
    assert "could not be cached" in caplog.text


def test_weights_that_are_not_in_blocks_are_quantized_as_ggml_does() -> None:
    weight = np.random.default_rng(0).standard_normal((6, 96)).astype(np.float32)
    weight[2, 32:64] = 0
    ours, theirs = quantize_q8_0(weight), quantize(weight, GGMLQuantizationType.Q8_0)
    kind = GGMLQuantizationType.Q8_0
    np.testing.assert_allclose(dequantize(ours, kind), dequantize(theirs, kind), atol=np.abs(weight).max() / 120)
    error = np.abs(dequantize(ours, kind) - weight)
    assert (error <= np.abs(weight.reshape(6, 3, 32)).max(-1).repeat(32, axis=1) / 250 + 1e-6).all()


def test_inputs_that_are_no_whole_block_are_filled_up_with_zeros() -> None:
    assert quantize_q8_0(np.ones((2, 40), np.float32)).shape == (2, 2 * 34)
