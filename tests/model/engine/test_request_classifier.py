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
    Verdict,
    instructions_checksum,
    load_request_classifier,
)


@pytest.fixture
def classifier() -> RequestClassifier:
    """Each number of the state speaks for a kind."""
    weight, bias = torch.eye(len(KINDS) - 1), torch.tensor([0.0, 0.0, -1.0, *[0.0] * 9])
    thresholds = torch.tensor([2.0, 2.0, 2.0, 2.0, 2.5, 2.0, 2.0, 2.0, 2.0, 2.0, 3.0])
    return RequestClassifier(weight, bias, thresholds, instructions_checksum("Be brief."), "base", {"seed": "1"})


@pytest.mark.parametrize(
    ("state", "with_tools", "without"),
    [
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -9.0, -9.0], "answerable", "answerable"),
        ([1.9, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -9.0, -9.0], "answerable", "answerable"),
        ([2.1, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -9.0, -9.0], "unable", "unable"),
        ([2.1, 2.2, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -9.0, -9.0], "unclear", "unclear"),
        ([2.5, 0.0, 3.4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -9.0, -9.0], "unable", "unable"),
        ([2.5, 0.0, 3.6, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -9.0, -9.0], "unsafe", "unsafe"),
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.5, -9.0], "answerable", "unable"),
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.5, -9.0], "task", "unable"),
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -9.0, 3.5], "task", "answerable"),
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.5, 2.5], "task", "unable"),
        ([4.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.5, -9.0], "task", "unable"),
        ([0.0, 0.0, 6.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.5, -9.0], "unsafe", "unsafe"),
        ([0.0, 0.0, 0.0, 0.0, 2.4, 0.0, 0.0, 0.0, 0.0, 0.0, -9.0, -9.0], "answerable", "answerable"),
        ([2.2, 0.0, 0.0, 0.0, 2.8, 0.0, 0.0, 0.0, 0.0, 0.0, -9.0, -9.0], "unknowable", "unknowable"),
        ([0.0, 0.0, 0.0, 0.0, 4.1, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0, -9.0], "unknowable", "unknowable"),
        ([0.0, 0.0, 0.0, 0.0, 3.9, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0, -9.0], "task", "unable"),
        ([9.0, 0.0, 0.0, 3.0, 0.0, 3.5, 0.0, 0.0, 0.0, 0.0, 2.9, -9.0], "unable", "unable"),
        ([3.0, 0.0, 0.0, 3.2, 0.0, 3.1, 0.0, 0.0, 0.0, 0.0, 4.0, -9.0], "task", "unable"),
        ([3.0, 0.0, 0.0, 5.0, 0.0, 3.1, 0.0, 0.0, 0.0, 0.0, 4.0, -9.0], "crisis", "crisis"),
        ([0.0, 0.0, 0.0, 0.0, 0.0, 2.1, 0.0, 0.0, 0.0, 0.0, -9.0, -9.0], "mistaken", "mistaken"),
        ([0.0, 0.0, 0.0, 0.0, 0.0, 4.1, 0.0, 0.0, 0.0, 0.0, -9.0, 3.1], "task", "mistaken"),
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.1, 0.0, 0.0, 0.0, -9.0, 3.1], "danger", "danger"),
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.1, 0.0, 0.0, 3.1, -9.0], "dismissal", "dismissal"),
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.9, 1.9, 0.0, 0.0, -9.0, -9.0], "answerable", "answerable"),
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.1, 0.0, -9.0, -9.0], "unsure", "unsure"),
        ([2.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.1, 0.0, -9.0, -9.0], "unable", "unable"),
        ([0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 9.1, 0.0, -9.0, 3.1], "task", "unsure"),
        ([0.0, 0.0, 0.0, 6.0, 0.0, 0.0, 5.0, 0.0, 0.0, 2.1, 9.0, -9.0], "emergency", "emergency"),
    ],
)
def test_a_request_counts_as_something_else_above_a_threshold(
    classifier: RequestClassifier, state: list[float], with_tools: Verdict, without: Verdict
) -> None:
    features = torch.cat((torch.tensor(state), torch.full((len(state),), 9.0)))  # the last layer's come last
    assert classifier.verdict(classifier.scores_of(features), may_be_task=True) == with_tools
    assert classifier.verdict(classifier.scores_of(features), may_be_task=False) == without


def test_what_nobody_would_make_use_of_is_left_out(classifier: RequestClassifier) -> None:
    state = [0.0, 0.0, 0.0, 2.5, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0, -9.0, -9.0]
    features = torch.cat((torch.tensor(state), torch.full((len(state),), 9.0)))
    assert classifier.verdict(classifier.scores_of(features), may_be_task=True) == "danger"
    assert (
        classifier.verdict(classifier.scores_of(features), may_be_task=True, leaving_out=("danger", "dismissal"))
        == "crisis"
    )


def test_what_cannot_be_fulfilled_is_known_for_the_instructions_that_it_was_trained_with(
    classifier: RequestClassifier,
) -> None:
    assert classifier.is_valid_for("Be brief.")
    assert not classifier.is_valid_for("Be brief!")


def test_a_classifier_is_saved_and_refused_for_other_weights(
    classifier: RequestClassifier, tiny_qwen2: Path, tmp_path: Path
) -> None:
    path = tmp_path / "requests.safetensors"
    classifier.save(path)
    config = replace(open_checkpoint(tiny_qwen2).config, hidden=len(KINDS) - 1)
    loaded = load_request_classifier(path, config, "base")
    assert torch.equal(loaded.weight, classifier.weight) and torch.equal(loaded.bias, classifier.bias)
    assert torch.equal(loaded.thresholds, classifier.thresholds)
    assert loaded.is_valid_for("Be brief.") and loaded.metadata["seed"] == "1"
    with pytest.raises(BadModelFile, match="was made for weights with sha256"):
        load_request_classifier(path, config, "other")
    with pytest.raises(BadModelFile, match="another shape: train it again"):
        load_request_classifier(path, replace(config, hidden=len(KINDS)), "base")
    path.write_bytes(b"no")
    with pytest.raises(BadModelFile, match="cannot be read"):
        load_request_classifier(path, config, "base")
