"""What is bundled was trained with the instructions of today."""

from __future__ import annotations

import hashlib

from agent.instructions import INSTRUCTIONS
from agent.program.prompt import INSTRUCTIONS as PROGRAM_INSTRUCTIONS
from model.checkpoint.bound_file import load_bound_file
from model.engine.bundled import BUNDLED_PROGRAM_PREFIXES, BUNDLED_REQUEST_CLASSIFIERS
from model.engine.request_classifier import instructions_checksum


def test_bundled_request_classifiers_know_the_default_instructions() -> None:
    """Otherwise they are never asked: train them again with `rejoinder convert request-classifier`."""
    files = list(BUNDLED_REQUEST_CLASSIFIERS.glob("*.safetensors"))
    assert files
    for file in files:
        _, metadata = load_bound_file(file, "request classifier", "train it")
        assert metadata["instructions_sha256"] == instructions_checksum(INSTRUCTIONS)


def test_bundled_prefixes_for_programs_stand_for_the_instructions_of_programs() -> None:
    """Otherwise they are never used: train them again with `rejoinder convert programs`."""
    files = list(BUNDLED_PROGRAM_PREFIXES.glob("*.safetensors"))
    assert {file.name for file in files} == {file.name for file in BUNDLED_REQUEST_CLASSIFIERS.glob("*.safetensors")}
    for file in files:
        _, metadata = load_bound_file(file, "trained prefix", "train it")
        assert metadata["instructions_sha256"] == hashlib.sha256(PROGRAM_INSTRUCTIONS.encode()).hexdigest()
