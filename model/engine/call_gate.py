"""The call gate: what the model's own states tell about the calls that a response needs, by a logistic regression for
each question. `lab/convert/train_call_gate.py` trains it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from torch import Tensor

from model.checkpoint.bound_file import load_bound_file, save_bound_file
from model.checkpoint.checkpoint import DecoderConfig
from model.checkpoint.gguf import BadModelFile
from model.decode.call_decision import GateOdds
from model.engine.request_classifier import classified_states

_NUM_QUESTIONS = len(fields(GateOdds))


@dataclass(frozen=True)
class CallGate:
    """log odds = weight · state + bias, for each question of `GateOdds`, in its order.

    Attributes:
        weight: [questions, hidden] float32.
        bias: [questions] float32.
        base: sha256 of the weights whose states it was trained on.
        metadata: the file's metadata: how it was trained, and its figures.
    """

    weight: Tensor
    bias: Tensor
    base: str
    metadata: dict[str, str]

    def odds(self, features: Tensor) -> GateOdds:
        """What it says of a response, given the features [features] of the row that predicts its first token
        (`ForwardInput.on_features`)."""
        state = classified_states(features, self.weight.shape[1])
        return GateOdds(*(self.weight @ state + self.bias).tolist())

    def save(self, path: Path) -> None:
        """Write it to a file, atomically. The weights are rounded to 16 bits."""
        save_bound_file(path, {"weight": self.weight.half(), "bias": self.bias}, self.base, self.metadata)


def load_call_gate(path: Path, config: DecoderConfig, base: str) -> CallGate:
    """Open a file that `CallGate.save` wrote, for a model of this shape, whose weights have the sha256 `base`. Raises
    BadModelFile: it is missing, damaged, or was made for other weights."""
    tensors, metadata = load_bound_file(path, "call gate", base=base, names=("weight", "bias"))
    weight, bias = tensors["weight"].float(), tensors["bias"].float()
    if weight.shape != (_NUM_QUESTIONS, config.hidden) or bias.shape != (_NUM_QUESTIONS,):
        raise BadModelFile(f"the call gate {path.name} has another shape: train it again with this version")
    return CallGate(weight, bias, base, metadata)
