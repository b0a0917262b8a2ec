"""A draft head's file belongs to one model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.checkpoint.checkpoint import DecoderConfig, open_checkpoint
from model.checkpoint.gguf import BadModelFile
from model.nn.adapter import random_adapter
from model.nn.draft_head import DraftHeadWeights, drafts_of, load_draft_head
from tests.model.random_draft_head import random_draft_head

FEATURES = 3 * 64


@pytest.fixture(scope="module")
def config(tiny_qwen2: Path) -> DecoderConfig:
    return open_checkpoint(tiny_qwen2).config


@pytest.fixture(scope="module")
def weights(config: DecoderConfig) -> DraftHeadWeights:
    return random_draft_head(FEATURES, config.hidden, config.vocab_size, seed=2)


def test_a_head_is_loaded_as_saved(config: DecoderConfig, weights: DraftHeadWeights, tmp_path: Path) -> None:
    replace(weights, metadata={"acceptance": "[0.5, 0.25]"}).save(tmp_path / "head.safetensors")
    loaded = load_draft_head(tmp_path / "head.safetensors", config, "base")
    assert loaded.acceptance == (0.5, 0.25)
    assert torch.equal(loaded.vocabulary, weights.vocabulary)
    for name, matrix in weights.matrices.items():
        assert float((loaded.matrices[name] - matrix).abs().max()) <= float(matrix.abs().max()) / 127
    assert drafts_of(tmp_path / "head.safetensors") == "recurrent"
    random_adapter(config, 2, 1, 0).save(tmp_path / "adapter.safetensors")
    assert drafts_of(tmp_path / "adapter.safetensors") == "masked"
    assert drafts_of(tmp_path / "missing.safetensors") == "masked"


@pytest.mark.parametrize("fault", ["other weights", "other shape", "lacks a matrix", "token out of range"])
def test_a_head_that_does_not_fit_is_rejected(
    config: DecoderConfig, weights: DraftHeadWeights, tmp_path: Path, fault: str
) -> None:
    if fault == "lacks a matrix":
        weights = replace(weights, matrices={k: v for k, v in weights.matrices.items() if k != "down"})
    if fault == "token out of range":
        weights = replace(weights, vocabulary=weights.vocabulary + config.vocab_size)
    weights.save(tmp_path / "head.safetensors")
    base = "other" if fault == "other weights" else "base"
    if fault == "other shape":
        config = replace(config, hidden=config.hidden + 1)
    with pytest.raises(BadModelFile, match="draft head"):
        load_draft_head(tmp_path / "head.safetensors", config, base)
