"""Sampling: chooses the next token, either the most likely one or a random one from the likely ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

_VARIED_TEMPERATURE, _VARIED_TOP_K = 0.6, 20
"""Of a variant, at least and unless it has one: without `top_k` the samples of a small model are much worse than its
most likely text. `top_p` would sort the vocabulary for each token, which takes 10 ms."""


@dataclass(frozen=True)
class Sampling:
    """Sampling parameters.

    Attributes:
        temperature: 0 takes the most likely token; 1 samples from the model's own distribution.
        top_k: sample only among this many most likely tokens; 0 for all.
        top_p: sample only among the most likely tokens that together have this probability.
        seed: makes sampling repeatable; None chooses a new seed each time.
        frequency_penalty, presence_penalty: lower the logit of a token that the response has, for each time and once.
        logit_bias: added to the logits of these tokens. -100 excludes a token.

    Raises:
        ValueError: a value is out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int | None = None
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.temperature <= 2:
            raise ValueError(f"temperature is {self.temperature} and must be between 0 and 2")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k} and must be 0 (all) or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p} and must be above 0 and at most 1")
        for name in ("frequency_penalty", "presence_penalty"):
            if not -2 <= getattr(self, name) <= 2:
                raise ValueError(f"{name} is {getattr(self, name)} and must be between -2 and 2")

    @property
    def biased(self) -> bool:
        """Whether logits are changed before a token is chosen (`TokenBias`)."""
        return bool(self.frequency_penalty or self.presence_penalty or self.logit_bias)

    def varied(self, variant: int) -> Sampling:
        """This sampling, or for a variant above 0 one that is random, with a seed that follows from the variant."""
        if not variant:
            return self
        temperature, top_k = max(self.temperature, _VARIED_TEMPERATURE), self.top_k or _VARIED_TOP_K
        return replace(self, temperature=temperature, top_k=top_k, seed=(self.seed or 0) + variant)

    def generator(self, device: torch.device) -> torch.Generator:
        """A random generator for one response, on the device of its logits."""
        generator = torch.Generator(device)
        if self.seed is None:
            generator.seed()
        else:
            generator.manual_seed(self.seed)
        return generator


def greedy_tokens(logits: Tensor) -> Tensor:
    """The most likely token of each distribution, the first one among equals: [..., vocabulary] → [...] int64."""
    if logits.device.type == "cpu" and logits.dtype == torch.float32:
        return torch.as_tensor(logits.numpy().argmax(-1))  # a tenth of the time that torch takes
    return logits.argmax(-1)


_COLDEST = 1e-3
"""Lower temperatures choose the same tokens, and would make logits infinite."""


def probabilities(logits: Tensor, sampling: Sampling) -> Tensor:
    """The distributions to sample from: [..., vocabulary] → [..., vocabulary], each summing to 1, on the device of the
    logits. Temperature above 0."""
    scaled = logits / max(sampling.temperature, _COLDEST)
    if sampling.top_k:
        floor = scaled.topk(min(sampling.top_k, scaled.shape[-1])).values[..., -1:]
        scaled = scaled.masked_fill(scaled < floor, -torch.inf)
    distribution = scaled.softmax(-1)
    if sampling.top_p < 1:
        ordered = distribution.sort(descending=True).values
        likely = ordered.cumsum(-1) - ordered < sampling.top_p
        floor = ordered.masked_fill(~likely, torch.inf).amin(-1, keepdim=True)
        distribution = distribution.masked_fill(distribution < floor, 0.0)
        distribution = distribution / distribution.sum(-1, keepdim=True)
    return distribution


_FEW = 256
"""Tokens among which those that share a `top_p` are looked for first: sorting the vocabulary takes 10 to 20 ms."""


def likely_tokens(logits: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """The tokens to sample from and their probabilities: [vocabulary] → [tokens] int64 ascending, [tokens].

    They are what `probabilities` leaves, but the whole vocabulary is not sorted unless it must be.
    """
    count = sampling.top_k or (_FEW if sampling.top_p < 1 else 0)
    if 0 < count < logits.shape[-1]:
        top, temperature = logits.topk(count), max(sampling.temperature, _COLDEST)
        among = top.values if sampling.top_k else logits
        weights = (top.values / temperature - (among / temperature).logsumexp(-1)).exp_()
        before = weights.cumsum(-1) - weights
        kept = int((before < sampling.top_p).sum())
        if sampling.top_k or kept < count:
            tokens, order = top.indices[:kept].sort()
            weights = weights[:kept][order]
            return tokens, weights / weights.sum()
    distribution = probabilities(logits, sampling)
    if not count:
        return torch.arange(len(distribution), device=logits.device), distribution
    tokens = distribution.nonzero()[:, 0]
    return tokens, distribution[tokens]


def token_at(distribution: Tensor, uniform: Tensor) -> Tensor:
    """The token whose interval a number falls into, if the tokens share [0, 1) in the order of their ids, each as its
    probability: [..., vocabulary], [...] float32 in [0, 1) → [...] int64."""
    ends = distribution.cumsum(-1)
    total = ends[..., -1:].contiguous()
    index = torch.searchsorted(ends, uniform[..., None] * total, right=True)
    return torch.minimum(index, torch.searchsorted(ends, total))[..., 0]  # a product may be rounded up to the total


def token_probabilities(logits: Tensor, tokens: Tensor) -> Tensor:
    """The probability of one token in each distribution: [rows, vocabulary], [rows] → [rows]."""
    return (logits.gather(-1, tokens[:, None])[:, 0] - logits.logsumexp(-1)).exp_()


def entropy_of(logits: Tensor) -> Tensor:
    """Entropy in nats: [..., vocabulary] → [...]."""
    below = logits - logits.amax(-1, keepdim=True)
    weight = below.exp()
    total = weight.sum(-1)
    mean = weight.mul_(below.clamp_(min=_MIN_LOGIT)).sum(-1)  # impossible tokens contribute 0
    return total.log() - mean / total


_UNIFORMS = 1024
"""Random numbers that are made at a time."""

_MIN_LOGIT = -1e4
"""Replaces a logit of -∞, so that its product with a weight of 0 is 0."""


@dataclass
class Sampler:
    """Chooses tokens: greedily at temperature 0, otherwise randomly with `generator`, which is on the device of the
    logits. Only the chosen tokens are copied from there: a row of logits is half a megabyte."""

    sampling: Sampling = field(default_factory=Sampling)
    generator: torch.Generator = field(default_factory=torch.Generator)
    _uniforms: Tensor = field(default_factory=lambda: torch.empty(0), init=False)
    _numbers: torch.Generator = field(default_factory=torch.Generator, init=False)

    def __post_init__(self) -> None:
        self._numbers.manual_seed(self.generator.initial_seed())

    def uniforms(self, count: int) -> Tensor:
        """The random numbers of the first positions of a text, at least so many: [count or more] float32 in [0, 1). A
        position has the same number whatever has been sampled before, and on every device."""
        while len(self._uniforms) < count:
            self._uniforms = torch.cat((self._uniforms, torch.rand(_UNIFORMS, generator=self._numbers)))
        return self._uniforms

    def sample_at(self, logits: Tensor, position: int) -> int:
        """A token as the base model alone would choose it there: [vocabulary]. It depends on the logits and on the
        position's random number alone, so a token that is verified later is the one that would be sampled now."""
        if self.sampling.temperature == 0:
            return int(greedy_tokens(logits))
        tokens, distribution = likely_tokens(logits, self.sampling)
        uniform = self.uniforms(position + 1)[position].to(logits.device)
        return int(tokens[token_at(distribution, uniform)])

    def sample(self, logits: Tensor) -> int:
        """A token as the base model alone would choose it: [vocabulary]."""
        if self.sampling.temperature == 0:
            return int(greedy_tokens(logits))
        return int(torch.multinomial(probabilities(logits, self.sampling), 1, generator=self.generator))

    def sample_rows(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """A token for each row of logits [rows, vocabulary], and its probability [rows] in its own distribution."""
        if self.sampling.temperature == 0:
            best = greedy_tokens(logits)
            return best, token_probabilities(logits, best)
        distributions = probabilities(logits, self.sampling)
        tokens = torch.multinomial(distributions, 1, generator=self.generator)
        return tokens[:, 0], distributions.gather(1, tokens)[:, 0]
