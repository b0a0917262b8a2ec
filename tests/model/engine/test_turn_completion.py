"""The turn-completion classifier: the text it is given, and its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.checkpoint.checkpoint import open_checkpoint
from model.checkpoint.gguf import BadModelFile
from model.engine.turn_completion import TurnCompletionClassifier, load_turn_completion_classifier, normalize_text


@pytest.mark.parametrize(
    ("transcript", "normalized"),
    [
        ("What's the time?", "what's the time"),
        ("I’m at 10:30, it's 3.5.", "i'm at 10:30 it's 3.5"),
        ("My number is 555-123.", "my number is 555 123"),
        ("'Hello,' he said… well—um", "hello he said well um"),
        ("... !", ""),
    ],
)
def test_punctuation_is_removed_except_inside_words_and_numbers(transcript: str, normalized: str) -> None:
    assert normalize_text(transcript) == normalized


def test_a_classifier_is_saved_and_refused_for_other_weights(tiny_qwen2: Path, tmp_path: Path) -> None:
    config, path = open_checkpoint(tiny_qwen2).config, tmp_path / "ending.safetensors"
    weight = torch.randn(config.hidden, generator=torch.Generator().manual_seed(5)) * 0.1
    classifier = TurnCompletionClassifier(weight, 0.1, "base", {"seed": "1"})
    classifier.save(path)
    loaded = load_turn_completion_classifier(path, config, "base")
    assert torch.equal(loaded.weight, classifier.weight)
    assert loaded.bias == pytest.approx(classifier.bias)
    assert loaded.metadata["seed"] == "1"
    with pytest.raises(BadModelFile, match="was made for weights with sha256"):
        load_turn_completion_classifier(path, config, "other")
    with pytest.raises(BadModelFile, match="another shape"):
        load_turn_completion_classifier(path, replace(config, hidden=32), "base")
    path.write_bytes(b"no")
    with pytest.raises(BadModelFile, match="cannot be read"):
        load_turn_completion_classifier(path, config, "base")
