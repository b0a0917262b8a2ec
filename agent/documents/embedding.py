"""The embedding model: a sentence as a vector, so that texts about the same thing are near each other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from tokenizers import BertWordPieceTokenizer

from agent.documents.library import Vectors

EMBEDDING_MODEL = "all-minilm-l6-v2"
"""Its name in the catalog of models."""

_MAX_TOKENS = 256
"""What the model was trained to read of a text."""

_BATCH = 16


class Embedder:
    """Sentence vectors of a BERT encoder: the mean of its last states (Reimers and Gurevych, 2019).

    Args:
        folder: with `model.onnx` and `vocab.txt`.
    """

    name = EMBEDDING_MODEL

    def __init__(self, folder: Path) -> None:
        self._tokenizer = BertWordPieceTokenizer(str(folder / "vocab.txt"))
        self._tokenizer.enable_truncation(_MAX_TOKENS)
        self._tokenizer.enable_padding()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self._inputs = {node.name for node in self._session.get_inputs()}

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """Texts → [texts, dimensions] of length 1."""
        order = sorted(range(len(texts)), key=lambda n: len(texts[n]))  # so that little is padded
        vectors: list[Vectors] = []
        for start in range(0, len(order), _BATCH):
            vectors.append(self._embed([texts[n] for n in order[start : start + _BATCH]]))
        found = np.concatenate(vectors)
        return found[np.argsort(order)]

    def _embed(self, texts: list[str]) -> Vectors:
        encodings = self._tokenizer.encode_batch(texts)
        mask = np.array([encoding.attention_mask for encoding in encodings], np.int64)
        values = {
            "input_ids": np.array([encoding.ids for encoding in encodings], np.int64),
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(mask),
        }
        states = self._session.run(None, {name: values[name] for name in self._inputs})[0]
        weights = mask[:, :, None].astype(np.float32)
        mean = (states * weights).sum(1) / weights.sum(1)
        return np.asarray(mean / np.linalg.norm(mean, axis=1, keepdims=True), np.float32)
