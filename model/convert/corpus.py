"""The training text in one compact file: token ids, and which of them the base model wrote itself.

File: safetensors with `tokens` int32 (all texts one behind the other), `ends` int64 (where each text ends), `spans`
int64 [n, 3] (text, first token, one past the last, counted inside the text) and `kinds` int64; metadata says which
weights wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from model.belonging import load_tensors, save_tensors

KINDS = ("chat", "list", "numbers", "json", "tool", "passage", "own")
"""What a text is; `own` comes from people's own conversations."""


@dataclass(frozen=True)
class Text:
    """One conversation.

    Attributes:
        tokens: all of it.
        spans: where the base model wrote: pairs of first token and one past the last.
        kind: one of `KINDS`.
    """

    tokens: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    kind: str

    @property
    def written(self) -> int:
        """Tokens that the base model wrote."""
        return sum(end - begin for begin, end in self.spans)


@dataclass(frozen=True)
class Corpus:
    """Texts that one base model wrote.

    Attributes:
        base: sha256 of the model's weights.
        about: how they were made, for people.
    """

    texts: tuple[Text, ...]
    base: str
    about: dict[str, str]

    def save(self, path: Path) -> None:
        """Write it, atomically."""
        tensors = {
            "tokens": torch.tensor([token for text in self.texts for token in text.tokens], dtype=torch.int32),
            "ends": torch.tensor([len(text.tokens) for text in self.texts]).cumsum(0),
            "spans": torch.tensor([[n, *span] for n, text in enumerate(self.texts) for span in text.spans]).view(-1, 3),
            "kinds": torch.tensor([KINDS.index(text.kind) for text in self.texts]),
        }
        save_tensors(path, tensors, self.base, {"about": json.dumps(self.about)})


def load_corpus(path: Path, base: str | None = None) -> Corpus:
    """Open a file that `Corpus.save` wrote.

    Args:
        base: sha256 of the weights that must have written it; any when None.

    Raises:
        BadModelFile: it is missing, damaged, or was written by other weights.
    """
    names = ("tokens", "ends", "spans", "kinds")
    advice = "run `rejoinder convert data` with them"
    stored, metadata = load_tensors(path, "training text", advice, base=base, names=names)
    tokens, ends, spans, kinds = (stored[name] for name in names)
    of_text: list[list[tuple[int, int]]] = [[] for _ in range(len(ends))]
    for text, begin, end in spans.tolist():
        of_text[text].append((begin, end))
    starts = [0, *ends.tolist()]
    flat: Sequence[int] = tokens.tolist()
    texts = tuple(
        Text(tuple(flat[starts[n] : starts[n + 1]]), tuple(of_text[n]), KINDS[kind])
        for n, kind in enumerate(kinds.tolist())
    )
    return Corpus(texts, metadata.get("base_sha256", ""), json.loads(metadata.get("about", "{}")))


def loops(tokens: Sequence[int], size: int = 6, times: int = 3) -> bool:
    """Whether a text says the same `size` tokens `times` times or more: a small model's greedy loop."""
    seen: dict[tuple[int, ...], int] = {}
    for n in range(len(tokens) - size + 1):
        piece = tuple(tokens[n : n + size])
        seen[piece] = seen.get(piece, 0) + 1
        if seen[piece] >= times:
            return True
    return False
