"""The request classifier: when it takes a request for one that cannot be fulfilled, where it is valid, and its file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from model.checkpoint.checkpoint import open_checkpoint
from model.checkpoint.gguf import BadModelFile
from model.engine.request_classifier import (
    KINDS,
    RequestClassifier,
    RequestKind,
    instructions_checksum,
    load_request_classifier,
)


@pytest.fixture
def classifier() -> RequestClassifier:
    """Each number of the state speaks for a kind."""
    weight, bias = torch.eye(len(KINDS) - 1), torch.tensor([0.0, 0.0, -1.0, 0.0])
    tools = frozenset(["get_time", "set_timer"])
    return RequestClassifier(weight, bias, 2.0, instructions_checksum("Be brief."), tools, "base", {"seed": "1"})


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ([0.0, 0.0, 0.0, 0.0], "answerable"),
        ([1.9, 1.0, 0.0, 0.0], "answerable"),
        ([2.1, 1.0, 0.0, 0.0], "unable"),
        ([2.1, 2.2, 0.0, 0.0], "unclear"),
        ([2.5, 0.0, 3.4, 0.0], "unable"),
        ([2.5, 0.0, 3.6, 0.0], "unsafe"),
    ],
)
def test_a_request_counts_as_another_kind_above_the_threshold(
    classifier: RequestClassifier, state: list[float], kind: RequestKind
) -> None:
    last_layer = torch.full((4,), 9.0)
    assert classifier.classify(torch.cat((torch.tensor(state), last_layer))) == kind


def test_it_is_valid_for_the_instructions_and_tools_that_it_was_trained_with(classifier: RequestClassifier) -> None:
    assert classifier.is_valid_for("Be brief.", ())
    assert classifier.is_valid_for("Be brief.", ["set_timer"])
    assert not classifier.is_valid_for("Be brief!", ())
    assert not classifier.is_valid_for("Be brief.", ["set_timer", "call_taxi"])


def test_a_classifier_is_saved_and_refused_for_other_weights(
    classifier: RequestClassifier, tiny_qwen2: Path, tmp_path: Path
) -> None:
    path = tmp_path / "requests.safetensors"
    classifier.save(path)
    config = replace(open_checkpoint(tiny_qwen2).config, hidden=4)
    loaded = load_request_classifier(path, config, "base")
    assert torch.equal(loaded.weight, classifier.weight) and torch.equal(loaded.bias, classifier.bias)
    assert (loaded.threshold, loaded.tools) == (2.0, classifier.tools)
    assert loaded.is_valid_for("Be brief.", ["get_time"]) and loaded.metadata["seed"] == "1"
    with pytest.raises(BadModelFile, match="was made for weights with sha256"):
        load_request_classifier(path, config, "other")
    with pytest.raises(BadModelFile, match="another shape"):
        load_request_classifier(path, replace(config, hidden=5), "base")
    path.write_bytes(b"no")
    with pytest.raises(BadModelFile, match="cannot be read"):
        load_request_classifier(path, config, "base")
