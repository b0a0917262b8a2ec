"""A corpus is stored without loss, and looping texts are detected."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.convert.corpus import is_looping, load_corpus
from model.checkpoint.gguf import BadModelFile
from model.engine.loader import LoadedModel
from tests.lab.convert.tiny_corpus import tiny_corpus


def test_a_corpus_is_saved_and_loaded_and_rejected_if_damaged(model: LoadedModel, tmp_path: Path) -> None:
    corpus = tiny_corpus(model, 5)
    corpus.save(tmp_path / "text.safetensors")
    assert load_corpus(tmp_path / "text.safetensors", corpus.base) == corpus
    with pytest.raises(BadModelFile, match="and these have another: run `rejoinder convert data` with them"):
        load_corpus(tmp_path / "text.safetensors", "another")
    (tmp_path / "text.safetensors").write_bytes(b"no")
    with pytest.raises(BadModelFile, match="run `rejoinder convert data`"):
        load_corpus(tmp_path / "text.safetensors")


def test_repeated_sequences_are_detected_as_loops() -> None:
    assert is_looping([1, 2, 3, 4, 5, 6] * 3)
    assert not is_looping(list(range(60)))
