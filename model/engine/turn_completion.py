"""Estimates whether what a user has said so far is a complete turn, from the state of the last layer after the last
word. `lab/convert/train_turn_completion.py` trains the classifier. It knows words, not sound or time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from chat.types import Message
from model.checkpoint.bound_file import load_bound_file, save_bound_file
from model.checkpoint.chat_template import ChatTemplate
from model.checkpoint.checkpoint import DecoderConfig
from model.checkpoint.gguf import BadModelFile

_PUNCTUATION = re.compile(r"[^\w\s.:'’]|_|[.:](?!\d)|(?<!\d)[.:]|['’](?!\w)|(?<!\w)['’]")


def normalize_text(text: str) -> str:
    """Lower case without punctuation, because a speech recognizer ends every transcript with a full stop. Apostrophes
    inside words, and points and colons inside numbers, stay."""
    return " ".join(_PUNCTUATION.sub(" ", text.lower()).replace("’", "'").split())


def user_turn_prefix(template: ChatTemplate) -> list[int]:
    """Token ids that precede a user's first words in a conversation without instructions.

    Raises:
        ValueError: the template refuses a conversation that starts with a user message.
    """
    one, other = (template.encode([Message("user", text)], add_generation_prompt=False) for text in "ab")
    return one[: next(n for n, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)]


@dataclass(frozen=True)
class TurnCompletionClassifier:
    """A logistic regression: P(complete) = σ(weight · state + bias).

    Attributes:
        weight: [hidden] float32.
        base: sha256 of the weights whose states it was trained on.
        metadata: the file's metadata: how it was trained, and its figures.
    """

    weight: Tensor
    bias: float
    base: str
    metadata: dict[str, str]

    def __call__(self, states: Tensor) -> Tensor:
        """States [n, hidden] → [n] float32, 0 to 1."""
        return torch.sigmoid((states.float().cpu() * self.weight).sum(-1) + self.bias)

    def save(self, path: Path) -> None:
        """Write it to a file, atomically."""
        tensors = {"weight": self.weight.contiguous(), "bias": torch.tensor(self.bias)}
        save_bound_file(path, tensors, self.base, self.metadata)


def load_turn_completion_classifier(path: Path, config: DecoderConfig, base: str) -> TurnCompletionClassifier:
    """Open a file that `TurnCompletionClassifier.save` wrote, for a model of this shape, whose weights have the sha256
    `base`. Raises BadModelFile: it is missing, damaged, or was made for other weights."""
    kind = "turn-completion classifier"
    tensors, metadata = load_bound_file(path, kind, base=base, names=("weight", "bias"))
    weight, bias = tensors["weight"].float(), tensors["bias"]
    if weight.shape != (config.hidden,) or bias.numel() != 1:
        raise BadModelFile(f"the {kind} {path.name} has another shape than the model")
    return TurnCompletionClassifier(weight, float(bias), base, metadata)
