"""The tokenizer streams whole characters, and rejects files it does not support."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from model.checkpoint.checkpoint import open_checkpoint
from model.checkpoint.gguf import BadModelFile
from model.checkpoint.tokenizer import TextTokenizer


def test_text_streams_whole_characters_only(tiny_qwen2: Path) -> None:
    tokenizer = open_checkpoint(tiny_qwen2).tokenizer()
    text = "naïve — 日本 🙂 end"
    detokenizer = tokenizer.detokenizer()
    parts = [detokenizer(token) for token in tokenizer.encode(text)]
    assert "".join(parts) == text
    assert not any("\ufffd" in part for part in parts)


def test_an_unknown_gguf_tokenizer_is_an_error() -> None:
    with pytest.raises(BadModelFile, match="supported is 'gpt2' with"):
        TextTokenizer.from_gguf({"tokenizer.ggml.model": "llama", "tokenizer.ggml.pre": "default"})


def test_a_tokenizer_is_built_from_vocabulary_and_merges(tmp_path: Path, tiny_tokenizer: Tokenizer) -> None:
    """Dream has no tokenizer.json."""
    config = json.loads(tiny_tokenizer.to_str())
    (tmp_path / "vocab.json").write_text(json.dumps(config["model"]["vocab"]))
    merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in config["model"]["merges"]]
    (tmp_path / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    added = {token["content"]: token["id"] for token in config["added_tokens"]}
    (tmp_path / "added_tokens.json").write_text(json.dumps(added))
    tokenizer = TextTokenizer.from_folder(tmp_path)
    text = "<|im_start|>the capital of France"
    assert tokenizer.encode_template(text) == tiny_tokenizer.encode(text).ids
    (tmp_path / "vocab.json").write_text("no")
    with pytest.raises(BadModelFile, match="cannot be read"):
        TextTokenizer.from_folder(tmp_path)


def test_a_token_that_stands_for_no_bytes_is_its_text() -> None:
    tokenizer = TextTokenizer(Tokenizer(models.BPE({"Ġa": 0, "漢": 1, "a b": 2}, [])))
    assert [tokenizer.token_bytes(token) for token in range(4)] == [b" a", "漢".encode(), b"a b", b""]


def test_no_text_has_more_characters_a_token_than_the_longest_token() -> None:
    vocabulary = {"Ġ": 0, "-": 1, "--": 2, "----": 3, "é": 4}
    assert TextTokenizer(Tokenizer(models.BPE(vocabulary, []))).longest_token == 4
