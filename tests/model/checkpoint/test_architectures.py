"""Detection of a checkpoint's family, and the families that are rejected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from model.checkpoint.architectures import FAMILIES, detect_family, get_family, uses_sliding_window
from model.checkpoint.checkpoint import open_checkpoint
from model.checkpoint.gguf import BadModelFile
from model.decode.draft import Draft
from model.engine.loader import load_model
from tests.conftest import save_tiny_checkpoint
from tests.model.tiny_families import (
    save_tiny_family,
)


def test_the_error_for_an_unknown_family_lists_the_known_ones(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["MambaForCausalLM"], "model_type": "mamba"}))
    with pytest.raises(BadModelFile, match=r"MambaForCausalLM / mamba model; known families are llama, .*nemotron"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("architecture", "model_type"),
    [
        ("LLaDAMoEModelLM", "llada"),
        ("Qwen2ForSequenceClassification", "qwen2"),
        ("LlamaForTokenClassification", "llama"),
    ],
)
def test_an_unknown_architecture_is_rejected_even_if_its_model_type_is_known(
    tmp_path: Path, architecture: str, model_type: str
) -> None:
    with pytest.raises(BadModelFile, match=f"a {architecture} / {model_type} model; known families are llama, "):
        detect_family({"architectures": [architecture], "model_type": model_type}, tmp_path)
    assert detect_family({"model_type": model_type}, tmp_path).name == model_type


def test_a_family_that_cannot_be_detected_can_be_requested(
    tmp_path: Path, tiny_tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture
) -> None:
    """I-DLM as its authors publish it: with SDAR's architecture name and blocks of three, in a folder that a hub names
    by a hash."""
    ours, _ = save_tiny_family(tmp_path, tiny_tokenizer, "i-dlm")
    folder = ours.rename(tmp_path / "3f1c9a77")
    settings = json.loads((folder / "config.json").read_text())
    del settings["use_regular_causal"]
    (folder / "config.json").write_text(json.dumps(settings))
    with caplog.at_level("INFO"):
        assert open_checkpoint(folder).config.family == "sdar"
        assert "3f1c9a77 is read as sdar (--family names another)" in caplog.text
        model = load_model(folder, device="cpu", precision="float32", family="i-dlm")
        assert "3f1c9a77 is read as i-dlm" in caplog.text
    config = model.decoder.config.diffusion
    assert config is not None
    assert (config.text_attention, config.block_size, config.verification) == ("causal", 3, "branches")
    with pytest.raises(BadModelFile, match="there is no family 'idlm'; known families are llama, "):
        open_checkpoint(folder, "idlm")
    with pytest.raises(BadModelFile, match="is a sdar model, which cannot be computed as dream"):
        open_checkpoint(folder, "dream")


def test_i_dlm_is_detected_by_the_name_of_its_repository_in_the_hugging_face_cache() -> None:
    config = {"architectures": ["SDARForCausalLM"]}
    assert detect_family(config, "hub/models--yifanyu--I-DLM-8B/snapshots/3f1c9a77").name == "i-dlm"
    assert detect_family(config, "hub/models--JetLM--SDAR-8B-Chat/snapshots/3f1c9a77").name == "sdar"


@pytest.mark.parametrize(
    ("name", "config", "sliding"),
    [
        ("qwen2", {"use_sliding_window": False, "sliding_window": 32768}, False),
        ("qwen2", {"sliding_window": 32768}, False),  # transformers defaults to no sliding window
        ("qwen2", {"use_sliding_window": True, "sliding_window": 32768}, True),
        ("qwen3", {"layer_types": ["full_attention", "sliding_attention"]}, True),
        ("dream", {"use_sliding_window": False, "sliding_window": None}, False),
        ("ministral", {"sliding_window": None}, False),
        ("ministral", {"sliding_window": 4096}, True),
        ("llama", {"use_sliding_window": None, "sliding_window": 4096}, True),
        ("nemotron-labs-diffusion", {"sliding_window": 4096}, True),
    ],
)
def test_a_sliding_window_is_detected_as_in_transformers(name: str, config: dict[str, object], sliding: bool) -> None:
    assert uses_sliding_window(get_family(name), config) == sliding


def test_a_checkpoint_with_a_sliding_window_is_rejected(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    folder = save_tiny_checkpoint(tmp_path, tiny_tokenizer, "ministral3", sliding_window=16)
    with pytest.raises(BadModelFile, match="uses sliding-window attention"):
        open_checkpoint(folder)


def test_every_architecture_belongs_to_one_family_or_to_families_with_different_names() -> None:
    names = [(architecture, family.name) for family in FAMILIES for architecture in family.architectures]
    assert len(names) == len(set(names))
    assert Draft().tokens == ()
