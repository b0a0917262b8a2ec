"""Trains a draft head on a model's responses and their states (`generate_states.py`).

Every position of a response is a sample: from the features of the row that predicted a token, and that token, the head
predicts the tokens after it. The target is the base model's own distribution there (knowledge distillation), over the
head's vocabulary. Training takes minutes, so an interrupted one begins again.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from torch import Tensor

from lab.convert.corpus import KINDS
from lab.convert.generate_states import StateShard
from lab.convert.training import Training
from model.decode.draft_length import MAX_HEAD_DRAFTS
from model.nn.draft_head import DraftHeadWeights, advance, normalize
from model.nn.linear import Embedding

_HELD_OUT = 3000
"""Tokens on which the acceptance is measured."""

_REGRESSION_SAMPLES, _RIDGE = 24_000, 0.02
"""Samples of the regression that the training starts from, and its penalty relative to the variance of the inputs."""

_CHUNK = 1024


@dataclass(frozen=True)
class HeadTrainingConfig:
    """How to train. Field names are keys of the file's metadata.

    Attributes:
        epochs: how often every position is a sample; the learning rate decays until the last.
        seed: of the initial matrices and of the order of samples.
        size, inner: width of the head, and of its SwiGLU.
        vocabulary: number of tokens that it can draft. Those that never occur in the responses are not trained, but the
            base model's output head knows them.
        batch: samples per step.
        drafts: tokens that are predicted in a row.
        later_share: share of the samples for which the second and later tokens are trained, too.
        rate: peak learning rate.
        targets: tokens of the base model's distribution that are compared: its most likely ones.
        dropout: share of features that are set to zero.
    """

    epochs: float = 4.0
    seed: int = 1
    size: int = 512
    inner: int = 1536
    vocabulary: int = 12288
    batch: int = 384
    drafts: int = 4
    later_share: float = 0.4
    rate: float = 1e-3
    targets: int = 16
    dropout: float = 0.1


@dataclass(frozen=True)
class Samples:
    """Tokens and features of responses.

    Attributes:
        tokens, features: as in `StateShard`.
        last: [n] int64, the index of the last token of each token's response.
        kinds: [n] int64, the kind of each token's response.
    """

    tokens: Tensor
    features: Tensor
    last: Tensor
    kinds: Tensor

    @staticmethod
    def of(shards: Sequence[StateShard]) -> Samples:
        """The responses of some shards."""
        whole = StateShard.joined(shards)
        lengths = whole.ends.diff(prepend=whole.ends.new_zeros(1))
        last, kinds = (part.repeat_interleave(lengths) for part in (whole.ends - 1, whole.kinds))
        return Samples(whole.tokens.long(), whole.features, last, kinds)


class DrafterTraining(Training):
    """A training on the states of a model's responses. The state of another one is replaced."""

    _starts_over = True
    _betas, _weight_decay = (0.9, 0.98), 0.05
    _warm_up, _least = 0.03, 0.05


class HeadTraining(DrafterTraining):
    """A training of a draft head.

    Args:
        shards: what to train on. The first responses of the first one are held out.
        embedding: the base model's embeddings.
        head_rows: the rows of its output head for some tokens: [n] int64 → [n, hidden] float32.
        vocab_size: its number of tokens.
    """

    def __init__(
        self,
        shards: Sequence[StateShard],
        embedding: Embedding,
        head_rows: Callable[[Tensor], Tensor],
        vocab_size: int,
        config: HeadTrainingConfig,
    ) -> None:
        self._config = config
        held_out, rest = split(shards[0])
        self._samples, self._held_out = Samples.of([rest, *shards[1:]]), Samples.of([held_out])
        self._embedding = embedding
        self.vocabulary = choose_vocabulary(self._samples.tokens, config.vocabulary, vocab_size)
        self._head_rows = head_rows(self.vocabulary)
        trained = torch.isin(self.vocabulary, self._samples.tokens)
        self._trained_rows = self._head_rows[trained]
        self._targets = most_likely(self._samples, self._trained_rows, config.targets)
        self.matrices = initial_matrices(self._samples, embedding, self._head_rows.shape[1], config)
        steps = math.ceil(config.epochs * len(self._samples.tokens) / config.batch)
        groups = [(config.rate, [*self.matrices.values()])]
        super().__init__(groups, None, {}, config, steps=steps)

    def weights(self, base: str, base_bytes: int) -> DraftHeadWeights:
        """The head in its current state.

        Args:
            base, base_bytes: sha256 and size of the base model's weights.
        """
        metadata = {
            "recipe": json.dumps(asdict(self._config)),
            "base_bytes": str(base_bytes),
            "tokens": str(len(self._samples.tokens)),
            "minutes": str(round(self._seconds / 60, 1)),
            "device": f"{os.cpu_count()} CPU cores",
            "acceptance": json.dumps(self.probe()["all"]),
        }
        matrices = {name: matrix.detach() for name, matrix in self.matrices.items()}
        return DraftHeadWeights(matrices, self.vocabulary, base, metadata)

    @torch.no_grad()
    def probe(self) -> dict[str, tuple[float, ...]]:
        """How often the first, the first two, … drafts equal the base model's choices on the held-out responses, by
        kind and in `all`."""
        samples, drafts = self._held_out, MAX_HEAD_DRAFTS
        hits, tried = torch.zeros(len(KINDS), drafts), torch.zeros(len(KINDS), drafts)
        for start in range(0, len(samples.tokens), _CHUNK):
            at = torch.arange(start, min(start + _CHUNK, len(samples.tokens)))
            context, state = self._context(samples.features[at].float()), None
            right = torch.ones(len(at), dtype=torch.bool)
            for n in range(drafts):
                state, out, following, valid = self._advance(samples, at, n, context, state)
                right &= (self.vocabulary[(out @ self._head_rows.T).argmax(-1)] == samples.tokens[following]) & valid
                for kind in range(len(KINDS)):
                    of_kind = (samples.kinds[at] == kind) & valid
                    hits[kind, n] += (right & of_kind).sum()
                    tried[kind, n] += of_kind.sum()
        return rates_by_kind(hits, tried)

    def _context(self, features: Tensor) -> Tensor:
        return normalize(features) @ self.matrices["features"].T

    def _advance(
        self, samples: Samples, at: Tensor, n: int, context: Tensor, state: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Read the n-th token after each of the positions `at`: the state, what the output head scores, where the next
        token is, and whether the response is that long."""
        valid = at + n + 1 <= samples.last[at]
        now = torch.where(valid, at + n, samples.last[at])
        state, out = advance(self.matrices, context, self._embedding(samples.tokens[now]).to(context.dtype), state)
        return state, out, torch.where(valid, now + 1, now), valid

    def _add_gradients(self) -> float:
        config, samples = self._config, self._samples
        generator = torch.Generator().manual_seed(config.seed * 1_000_003 + self._step)
        at = torch.randint(len(samples.tokens), (config.batch,), generator=generator)
        at = at[at < samples.last[at]]
        features = samples.features[at].float()
        keep = torch.rand(features.shape, generator=generator) >= config.dropout
        loss, weight = torch.zeros(()), 0.0
        with torch.autocast("cpu", torch.bfloat16):
            context, state = self._context(features * keep / (1 - config.dropout)), None
            for n in range(config.drafts):
                if n == 1:
                    some = torch.rand(len(at), generator=generator) < config.later_share
                    assert state is not None
                    at, context, state = at[some], context[some], state[some]
                state, out, following, valid = self._advance(samples, at, n, context, state)
                part = self._loss(out @ self._trained_rows.T, following, valid)
                scale = 1.0 if n == 0 else config.later_share
                loss, weight = loss + scale * part, weight + scale
        loss = loss / weight
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    def _loss(self, logits: Tensor, following: Tensor, valid: Tensor) -> Tensor:
        """Cross-entropy with the base model's distribution of the tokens at `following`."""
        tokens, probabilities = (part[following] for part in self._targets)
        each = -(probabilities * logits.float().log_softmax(-1).gather(1, tokens)).sum(-1)
        return (each * valid).sum() / valid.sum().clamp(min=1)


def split(shard: StateShard) -> tuple[StateShard, StateShard]:
    """The first responses of a shard, with about `_HELD_OUT` tokens or a quarter of all, and the others."""
    count = max(1, int((shard.ends <= min(_HELD_OUT, len(shard.tokens) // 4)).sum()))
    return shard.part(0, count), shard.part(count, len(shard.ends))


def choose_vocabulary(tokens: Tensor, count: int, vocab_size: int) -> Tensor:
    """The most frequent tokens of the responses, filled up with the first ones of the vocabulary, which a byte-pair
    tokenizer sorts by frequency; ascending."""
    frequency = torch.bincount(tokens, minlength=vocab_size)
    order = torch.sort(frequency, descending=True, stable=True).indices
    return order[:count].sort().values


def initial_matrices(
    samples: Samples, embedding: Embedding, hidden: int, config: HeadTrainingConfig
) -> dict[str, Tensor]:
    """The best linear head: it predicts the state after a token from the features before it and its embedding (ridge
    regression), of rank `config.size`. The SwiGLU and the recurrence start at zero."""
    generator = torch.Generator().manual_seed(config.seed)
    size, inner = config.size, config.inner
    at = torch.randperm(len(samples.tokens), generator=generator)
    at = at[at < samples.last[at]][:_REGRESSION_SAMPLES]
    features, target = normalize(samples.features[at].float()), samples.features[at + 1][:, -hidden:].float()
    inputs = torch.cat((features, normalize(embedding(samples.tokens[at]).float())), 1)
    gram = inputs.T @ inputs
    gram.diagonal().add_(_RIDGE * float(gram.diagonal().mean()))
    best = torch.linalg.solve(gram, inputs.T @ target)
    left, strength, right = torch.linalg.svd(best, full_matrices=False)
    root = strength[:size].sqrt()
    first, output = (left[:, :size] * root).T, right[:size].T * root
    scale = float((inputs @ first.T).square().mean().sqrt())  # the output reads normalized states
    matrices = {
        "features": torch.zeros(size, features.shape[1]),
        "input": torch.zeros(size, hidden + size),
        "gate_up": torch.randn(2 * inner, size, generator=generator) / size**0.5,
        "down": torch.zeros(size, inner),
        "output": torch.zeros(hidden, size),
    }
    rank = len(root)
    matrices["features"][:rank] = first[:, : features.shape[1]]
    matrices["input"][:rank, :hidden] = first[:, features.shape[1] :]
    matrices["output"][:, :rank] = output * scale
    return matrices


@torch.no_grad()
def most_likely(samples: Samples, rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The base model's most likely tokens, as indices of `rows`, and their probabilities, which sum to 1: [n, count]
    each.

    Args:
        rows: [tokens, hidden], the output head's rows for the tokens that are trained.
    """
    head, tokens, values = rows.bfloat16(), list[Tensor](), list[Tensor]()
    for start in range(0, len(samples.features), _CHUNK):
        part = samples.features[start : start + _CHUNK, -rows.shape[1] :].bfloat16()
        best = (part @ head.T).float().topk(min(count, len(head)))
        tokens.append(best.indices)
        values.append(best.values.softmax(-1))
    return torch.cat(tokens), torch.cat(values)


def rates_by_kind(hits: Tensor, tried: Tensor) -> dict[str, tuple[float, ...]]:
    """The share of hits, by kind and in `all`.

    Args:
        hits, tried: [kinds, drafts], in the order of `KINDS`.
    """
    result = {name: _rates(hits[kind], tried[kind]) for kind, name in enumerate(KINDS) if float(tried[kind, 0]) > 0}
    return {**result, "all": _rates(hits.sum(0), tried.sum(0))}


def _rates(hits: Tensor, tried: Tensor) -> tuple[float, ...]:
    return tuple(round(float(part), 4) for part in hits / tried.clamp(min=1))
