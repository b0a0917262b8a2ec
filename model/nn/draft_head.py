"""The draft head: a small recurrent network that drafts the tokens after the newest one, one after the other.

It reads what the forward pass that predicted the newest token computed (`ForwardInput.on_features`), and the embedding
of every token that it follows, so it knows which token was chosen; the noise rows of an adapter do not. It scores a
part of the vocabulary with the base model's own output head. So a step that verifies k drafts has k + 1 rows.

With the features f of the row that predicted token t₀, and drafts t₁, t₂, …:

    c = F norm(f);  zᵢ = c + I [norm(embedding(tᵢ)), sᵢ₋₁];  sᵢ = norm(zᵢ + D swiglu(G norm(zᵢ)))
    tᵢ₊₁ = argmax head(O sᵢ)

Sources: recurrent drafter (Cheng et al., arXiv 2403.09919), Hydra (sequentially dependent heads, arXiv 2402.05109),
EAGLE-3 (features of several layers, arXiv 2503.01840), FR-Spec (a reduced vocabulary, arXiv 2502.14856).

File: safetensors with `vocabulary` int32 [n], and for each matrix its rows as int8 with one scale per row (`….scale`).
The metadata names the checksum of the base model's weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from model.checkpoint.bound_file import load_bound_file, save_bound_file
from model.checkpoint.checkpoint import DecoderConfig
from model.checkpoint.gguf import BadModelFile
from model.nn.forward_batch import num_features
from model.nn.linear import quantize_rows

MATRICES = ("features", "input", "gate_up", "down", "output")


class Drafted(NamedTuple):
    """What a draft head or a block drafter drafts.

    Attributes:
        tokens: the drafts.
        confidence: the probability of each, provided that those before it are right.
        others: other likely tokens in the place of each, and their probabilities; none where that is too costly.
    """

    tokens: tuple[int, ...] = ()
    confidence: tuple[float, ...] = ()
    others: tuple[tuple[tuple[int, float], ...], ...] = ()


@dataclass(frozen=True)
class DraftHeadWeights:
    """A draft head as it is stored.

    Attributes:
        matrices: F [size, features], I [size, hidden + size], G [2 × inner, size], D [size, inner] and
            O [hidden, size], by the names of `MATRICES`.
        vocabulary: [n] int64, the tokens that it can draft.
        base: sha256 of the base model's weights.
    """

    matrices: dict[str, Tensor]
    vocabulary: Tensor
    base: str
    metadata: dict[str, str]

    @property
    def acceptance(self) -> tuple[float, ...]:
        """How often the first, the first two, … drafts were all accepted on held-out text; empty if unknown."""
        return tuple(json.loads(self.metadata.get("acceptance") or "null") or ())

    def save(self, path: Path) -> None:
        """Write the head atomically."""
        tensors = {"vocabulary": self.vocabulary.to(torch.int32)}
        for name, matrix in self.matrices.items():
            tensors[name], tensors[f"{name}.scale"] = quantize_rows(matrix.detach().float())
        save_bound_file(path, tensors, self.base, self.metadata)


def drafts_of(path: Path) -> Literal["diffusion", "recurrent", "masked"]:
    """What kind of drafts a file makes. One that cannot be read counts as an adapter, whose loader reports it."""
    try:
        with safe_open(path, "pt") as file:
            names = set(file.keys())
    except (SafetensorError, OSError):
        return "masked"
    return "masked" if "vocabulary" not in names else "diffusion" if "places" in names else "recurrent"


def load_draft_head(path: Path, config: DecoderConfig, base: str) -> DraftHeadWeights:
    """Load a draft head for a model of this shape, whose weights have the sha256 `base`. Raises BadModelFile: it is
    missing, damaged, or was made for other weights."""
    tensors, metadata = load_bound_file(path, "draft head", base=base)
    try:
        matrices = {name: tensors[name].float() * tensors[f"{name}.scale"][:, None] for name in MATRICES}
        vocabulary = tensors["vocabulary"].long()
        size, inner = matrices["down"].shape
    except (KeyError, RuntimeError, IndexError, ValueError) as error:
        raise BadModelFile(f"the draft head {path.name} is incomplete or damaged ({error})") from None
    expected = {
        "features": (size, num_features(config)),
        "input": (size, config.hidden + size),
        "gate_up": (2 * inner, size),
        "down": (size, inner),
        "output": (config.hidden, size),
    }
    shapes = {name: tuple(matrix.shape) for name, matrix in matrices.items()}
    is_list = vocabulary.dim() == 1 and len(vocabulary) > 0
    if shapes != expected or not is_list or not 0 <= vocabulary.min() <= vocabulary.max() < config.vocab_size:
        raise BadModelFile(f"the draft head {path.name} has a different shape than the model")
    return DraftHeadWeights(matrices, vocabulary, base, metadata)


def advance(
    matrices: Mapping[str, Tensor], context: Tensor, embedded: Tensor, state: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Read one more token, in plain torch: for training, and what `cpu/draft_head.py` computes.

    Args:
        matrices: by the names of `MATRICES`.
        context: F norm(features), [n, size].
        embedded: [n, hidden], the embeddings of the tokens.
        state: [n, size] from the call before; None for the first token.

    Returns:
        The state s [n, size], and O s [n, hidden], which the output head scores.
    """
    state = read(matrices, context, embedded, state)
    return state, state @ matrices["output"].T


def read(matrices: Mapping[str, Tensor], context: Tensor, embedded: Tensor, state: Tensor | None) -> Tensor:
    """The state after one more token: see `advance`."""
    before = torch.zeros_like(context) if state is None else state
    z = context + torch.cat((normalize(embedded), before), -1) @ matrices["input"].T
    gate, up = (normalize(z) @ matrices["gate_up"].T).chunk(2, -1)
    return normalize(z + (torch.nn.functional.silu(gate) * up) @ matrices["down"].T)


def normalize(x: Tensor) -> Tensor:
    """RMS normalization without weights over the last dimension."""
    return torch.nn.functional.rms_norm(x, x.shape[-1:])
