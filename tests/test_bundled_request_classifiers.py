"""The request classifiers that are bundled were trained with the instructions that sessions have today."""

from __future__ import annotations

from agent.instructions import INSTRUCTIONS
from model.checkpoint.bound_file import load_bound_file
from model.engine.bundled import BUNDLED_REQUEST_CLASSIFIERS
from model.engine.request_classifier import instructions_checksum


def test_bundled_request_classifiers_know_the_default_instructions() -> None:
    """Otherwise they are never asked: train them again with `rejoinder convert request-classifier`."""
    files = list(BUNDLED_REQUEST_CLASSIFIERS.glob("*.safetensors"))
    assert files
    for file in files:
        _, metadata = load_bound_file(file, "request classifier", "train it")
        assert metadata["instructions_sha256"] == instructions_checksum(INSTRUCTIONS)
