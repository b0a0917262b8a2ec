"""Files that are bundled for some weights are found by the weights' checksum."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lab.convert.write_tuned import write_tuned
from model.checkpoint.checkpoint import open_checkpoint
from model.checkpoint.gguf import BadModelFile
from model.engine.bundled import (
    bundled,
    is_made_for,
    weights_checksum,
    weights_size,
)
from model.engine.loader import load_model
from model.engine.turn_completion import TurnCompletionClassifier, load_turn_completion_classifier
from model.hub.store import verified_checksum
from model.nn.decoder import Decoder
from model.nn.draft_head import load_draft_head
from model.nn.forward_batch import num_features
from tests.model.random_draft_head import random_draft_head


def test_a_bundled_classifier_is_found_only_for_its_own_weights(tiny_qwen2: Path, tmp_path: Path) -> None:
    config, path = open_checkpoint(tiny_qwen2).config, tmp_path / "ending.safetensors"
    weight = torch.randn(config.hidden, generator=torch.Generator().manual_seed(5)) * 0.1
    metadata = {"base_bytes": str(weights_size(tiny_qwen2)), "seed": "1"}
    classifier = TurnCompletionClassifier(weight, 0.1, weights_checksum(tiny_qwen2), metadata)
    classifier.save(path)
    found = bundled(tiny_qwen2, config, tmp_path, load_turn_completion_classifier)
    assert found is not None and torch.equal(found.weight, classifier.weight)
    replace(classifier, base="0" * 64).save(path)
    assert bundled(tiny_qwen2, config, tmp_path, load_turn_completion_classifier) is None


def test_a_bundled_draft_head_is_found_only_for_its_own_weights(tiny_qwen2: Path, tmp_path: Path) -> None:
    decoder = Decoder(open_checkpoint(tiny_qwen2), torch.device("cpu"), "int8")
    config, checksum = decoder.config, weights_checksum(tiny_qwen2)
    head = random_draft_head(num_features(config), config.hidden, config.vocab_size, 1, checksum)
    head = replace(head, metadata={"base_bytes": str(weights_size(tiny_qwen2))})
    head.save(tmp_path / "head.safetensors")
    found = bundled(tiny_qwen2, config, tmp_path, load_draft_head)
    assert found is not None and found.vocabulary.tolist() == head.vocabulary.tolist()
    replace(head, base="0" * 64).save(tmp_path / "head.safetensors")
    assert bundled(tiny_qwen2, config, tmp_path, load_draft_head) is None


def test_a_verified_file_is_not_read_again_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    computed = weights_checksum(path)
    stat = path.stat()
    note = {"sha256": "noted", "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    (tmp_path / ".model.gguf.verified").write_text(json.dumps(note))
    assert verified_checksum(path) == weights_checksum(path) == "noted"
    path.write_bytes(b"other weights")
    assert verified_checksum(path) is None
    assert weights_checksum(path) not in (computed, "noted")


def test_a_tuned_model_takes_what_was_made_for_its_base_or_for_itself(tiny_qwen2: Path, tmp_path: Path) -> None:
    base = weights_checksum(tiny_qwen2)
    name = "layers.0.mlp.up_proj.weight"
    rows, columns = open_checkpoint(tiny_qwen2).tensor(name).shape
    tuned = write_tuned(
        open_checkpoint(tiny_qwen2), {name: (torch.ones(rows, 1), torch.ones(1, columns))}, base, tmp_path / "out"
    )
    decoder = Decoder(open_checkpoint(tuned), torch.device("cpu"), "int8")
    config, folder = decoder.config, tmp_path / "bundled"
    folder.mkdir()
    size = {"base_bytes": str(weights_size(tiny_qwen2))}
    head = random_draft_head(num_features(config), config.hidden, config.vocab_size, 1, base)
    replace(head, metadata=size).save(folder / "head.safetensors")
    assert bundled(tuned, config, folder, load_draft_head) is not None
    assert bundled(tiny_qwen2, config, folder, load_draft_head) is not None

    def load(file: Path) -> None:
        assert load_model(tuned, device="cpu", adapter=file).draft_head is not None

    load(folder / "head.safetensors")
    again = tmp_path / "again.safetensors"
    replace(head, base=weights_checksum(tuned)).save(again)
    load(again)
    with pytest.raises(BadModelFile, match="was made for weights with sha256"):
        load_model(tiny_qwen2, device="cpu", adapter=again)
    replace(head, base="0" * 64).save(again)
    with pytest.raises(BadModelFile, match="was made for weights with sha256"):
        load(again)
    assert not is_made_for(tiny_qwen2, weights_checksum(tuned), weights_size(tuned))
