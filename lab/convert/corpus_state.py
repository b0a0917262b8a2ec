"""What `convert data` has generated so far, so that it can be interrupted and go on where it was."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from lab.convert.corpus import TrainingText
from lab.convert.saved_state import load_state, save_state


@dataclass
class CorpusState:
    """Everything that the next round of generation depends on.

    Attributes:
        random: the source of all random choices.
        texts: the texts so far.
        used_messages: user messages that must not occur again, normalized.
        response_counts: how often each response was given.
        tokens_by_kind: response tokens by kind of text.
        num_response_tokens, num_looping, num_batches: response tokens, discarded responses, and batches so far.
    """

    random: random.Random
    texts: list[TrainingText] = field(default_factory=list)
    used_messages: set[str] = field(default_factory=set)
    response_counts: Counter[tuple[int, ...]] = field(default_factory=Counter)
    tokens_by_kind: Counter[str] = field(default_factory=Counter)
    num_response_tokens: int = 0
    num_looping: int = 0
    num_batches: int = 0

    def save(self, path: Path, purpose: Mapping[str, Any]) -> None:
        """Write it to a file (`saved_state.py`)."""
        texts = [tuple(vars(text).values()) for text in self.texts]
        save_state(path, purpose, {**vars(self), "texts": texts, "random": self.random.getstate()})

    @staticmethod
    def load(path: Path, purpose: Mapping[str, Any]) -> CorpusState:
        """Read a file that `save` wrote. Raises BadModelFile."""
        saved = load_state(path, purpose, {}, torch.device("cpu"))
        state = CorpusState(**{**saved, "texts": [TrainingText(*text) for text in saved["texts"]]})
        state.random = random.Random()
        state.random.setstate(saved["random"])
        return state
