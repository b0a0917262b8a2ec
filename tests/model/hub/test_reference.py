"""Names of hub models are told apart from catalog names and paths."""

from __future__ import annotations

import pytest

from model.hub.reference import HubReference, parse_reference


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("Qwen/Qwen3-4B", HubReference("Qwen/Qwen3-4B")),
        ("Qwen/Qwen3-4B-GGUF:Q4_K_M", HubReference("Qwen/Qwen3-4B-GGUF", "main", "Q4_K_M")),
        ("o/r:BF16/model-00001-of-00002.gguf", HubReference("o/r", "main", "BF16/model-00001-of-00002.gguf")),
        ("o/r@v1.0", HubReference("o/r", "v1.0")),
        ("o/r@refs/pr/3:Q8_0", HubReference("o/r", "refs/pr/3", "Q8_0")),
        ("o/r:safetensors", HubReference("o/r", "main", "safetensors")),
    ],
)
def test_a_reference_has_a_repository_a_revision_and_a_selection(name: str, reference: HubReference) -> None:
    assert parse_reference(name) == reference
    assert str(reference) == name


@pytest.mark.parametrize(
    "name",
    [
        "qwen2.5-coder-0.5b",
        "auto",
        "/models/Qwen3-4B",
        "./org/repo",
        "~/org/repo",
        "../repo",
        "a/b/c",
        "models/own.gguf",
        "voices/joe.onnx",
        "o/r@",
        "o/r:",
        "o/r@../../x",
        "o/r:../../x",
        "o/../r",
        "o/r:/etc/passwd",
        "",
    ],
)
def test_catalog_names_paths_and_nonsense_are_not_references(name: str) -> None:
    assert parse_reference(name) is None
