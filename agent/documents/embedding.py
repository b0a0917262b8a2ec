"""The embedding model: a sentence as a vector, so that texts about the same thing are near each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import BertWordPieceTokenizer

from agent.documents.library import Vectors

EMBEDDING_MODEL = "all-minilm-l6-v2"
"""Its name in the catalog of models."""

DIMENSIONS = 384

_MAX_TOKENS = 256
"""What the model was trained to read of a text."""

_BATCH = 16


@dataclass(frozen=True)
class Embedded:
    """Some texts as vectors.

    Attributes:
        vectors: [texts, dimensions], each of length 1.
        tokens: how many were read.
    """

    vectors: Vectors
    tokens: int


class Embedder:
    """Sentence vectors of a BERT encoder: the mean of its last states (Reimers and Gurevych, 2019). Of a text that is
    longer than the model reads, the parts are embedded, and their mean, weighted by their lengths, stands for it.

    Args:
        folder: with `model.onnx` and `vocab.txt`.
    """

    name = EMBEDDING_MODEL

    def __init__(self, folder: Path) -> None:
        self._tokenizer = BertWordPieceTokenizer(str(folder / "vocab.txt"))
        self._tokenizer.enable_truncation(_MAX_TOKENS)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self._inputs = {node.name for node in self._session.get_inputs()}

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """Texts → [texts, dimensions] of length 1."""
        return self.embed(texts).vectors

    def embed(self, texts: Sequence[str]) -> Embedded:
        """The vectors of some texts, and what was read for them."""
        parts = [(n, part.ids) for n, text in enumerate(texts) for part in _parts(self._tokenizer.encode(text))]
        parts.sort(key=lambda part: len(part[1]))  # so that little is padded
        sums = np.zeros((len(texts), DIMENSIONS), np.float32)
        for start in range(0, len(parts), _BATCH):
            batch = parts[start : start + _BATCH]
            for (n, ids), vector in zip(batch, self._embed([ids for _, ids in batch]), strict=True):
                sums[n] += len(ids) * vector
        return Embedded(_normalized(sums), sum(len(ids) for _, ids in parts))

    def _embed(self, texts: list[list[int]]) -> Vectors:
        """Texts of at most `_MAX_TOKENS` tokens → [texts, dimensions]."""
        shape = len(texts), max(map(len, texts))
        ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for n, text in enumerate(texts):
            ids[n, : len(text)], mask[n, : len(text)] = text, 1
        values = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(mask)}
        states = self._session.run(None, {name: values[name] for name in self._inputs})[0]
        weights = mask[:, :, None].astype(np.float32)
        return _normalized((states * weights).sum(1) / weights.sum(1))


def _parts(encoding: Any) -> Iterator[Any]:
    """A text in parts that the model can read."""
    yield encoding
    yield from encoding.overflowing


def _normalized(vectors: Any) -> Vectors:
    """Vectors of length 1."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)
