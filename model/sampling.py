"""Which token comes next: the likeliest, or one drawn from the likely ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sampling:
    """How to choose a token.

    Attributes:
        temperature: 0 takes the likeliest token; 1 draws from the model's own distribution.
        top_k: draw only among this many likeliest tokens; 0 for all.
        top_p: draw only among the likeliest tokens that together hold this much probability.
        seed: makes the draws repeatable; None draws a fresh one.

    Raises:
        ValueError: a value out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 2:
            raise ValueError(f"temperature is {self.temperature} and must lie between 0 and 2")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k} and must be 0 (all) or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p} and must lie above 0 and at most at 1")

    def generator(self) -> torch.Generator:
        """A source of draws for one answer."""
        generator = torch.Generator()
        if self.seed is None:
            generator.seed()
        else:
            generator.manual_seed(self.seed)
        return generator


def likeliest(logits: Tensor) -> Tensor:
    """The likeliest token of each distribution, the first of equals: [..., vocabulary] → [...] int64."""
    if logits.device.type == "cpu" and logits.dtype == torch.float32:
        return torch.as_tensor(logits.numpy().argmax(-1))  # a tenth of the time that torch takes
    return logits.argmax(-1)


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """The distribution that is drawn from: [vocabulary] → [vocabulary] float32, summing to 1. Temperature above 0."""
    scaled = logits / sampling.temperature
    if sampling.top_k:
        floor = scaled.topk(min(sampling.top_k, scaled.shape[-1])).values[-1]
        scaled = scaled.masked_fill(scaled < floor, -torch.inf)
    spread = scaled.softmax(-1)
    if sampling.top_p < 1:
        ordered, order = spread.sort(descending=True)
        before = ordered.cumsum(-1) - ordered
        spread = spread.index_fill(0, order[before >= sampling.top_p], 0.0)
        spread = spread / spread.sum()
    return spread


def log_total(logits: Tensor) -> Tensor:
    """log Σ exp over a vocabulary: [..., vocabulary] → [...] float32. Where logits are shorter than that, terms keep
    their dtype and are added up in float32, so that no float32 copy of a vocabulary is made."""
    if logits.dtype == torch.float32:
        return logits.logsumexp(-1)
    top = logits.amax(-1, keepdim=True)
    return (logits - top).exp_().sum(-1, dtype=torch.float32).log_() + top[..., 0]


def chances(logits: Tensor, tokens: Tensor) -> Tensor:
    """How likely a token is in each distribution: [rows, vocabulary], [rows] → [rows] float32."""
    return (logits.gather(-1, tokens[:, None])[:, 0] - log_total(logits)).exp_()


def entropies(logits: Tensor) -> Tensor:
    """Entropy in nats: [..., vocabulary] → [...] float32, added up as in `log_total`."""
    below = logits - logits.amax(-1, keepdim=True)
    weight = below.exp()
    total = weight.sum(-1, dtype=torch.float32)
    mean = weight.mul_(below.clamp_(min=_NEVER)).sum(-1, dtype=torch.float32)  # what cannot be said has no part in it
    return total.log() - mean / total


_NEVER = -1e4
"""A logit of what cannot be said, so that its product with a weight of 0 is 0."""


@dataclass
class Rule:
    """How tokens are chosen: greedily at temperature 0, else drawn with `generator`."""

    sampling: Sampling = field(default_factory=Sampling)
    generator: torch.Generator = field(default_factory=torch.Generator)

    def spread(self, logits: Tensor) -> Tensor:
        """The distribution that the base model alone would have drawn from: [vocabulary]."""
        if self.sampling.temperature == 0:
            return torch.nn.functional.one_hot(likeliest(logits), logits.shape[-1]).float()
        return probabilities(logits.cpu().float(), self.sampling)

    def draw(self, logits: Tensor) -> int:
        """A token as the base model alone would have chosen it: [vocabulary]."""
        if self.sampling.temperature == 0:
            return int(likeliest(logits))
        return int(torch.multinomial(self.spread(logits), 1, generator=self.generator))
