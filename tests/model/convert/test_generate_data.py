"""The model generates its own training text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from model.checkpoint.gguf import BadModelFile
from model.convert.generate_data import CorpusConfig, generate_corpus
from model.engine.loader import LoadedModel


def test_the_model_generates_its_own_text_and_includes_own_conversations(model: LoadedModel, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    conversation = {"messages": [{"role": "user", "content": "hello to you"}, {"role": "assistant", "content": "x"}]}
    (own / "a.jsonl").write_text(json.dumps(conversation) + "\n")
    config = CorpusConfig(response_tokens=30, batch_size=4, own_conversations=own, shares={"json": 1.0})
    corpus = generate_corpus(model, "base", config, forbidden=["hello to you"])
    assert corpus.texts
    kinds = {text.kind for text in corpus.texts}
    assert kinds <= {"own", "json"}
    for text in corpus.texts:
        assert all(0 < begin < end <= len(text.tokens) for begin, end in text.spans)
    (own / "a.jsonl").write_text('{"messages": 3}\n')
    with pytest.raises(BadModelFile, match=r"a\.jsonl line 1 is not a conversation"):
        generate_corpus(model, "base", config, forbidden=[])
