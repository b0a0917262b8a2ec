"""Trains a block drafter on a model's responses and their states (`generate_states.py`, `own_text.py`).

A sample is a place in a response: the draft head has read the text up to it, and the tokens after it are masks. The
target is the base model's own distribution at every mask. The head is trained along. An interrupted training goes on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor

from lab.convert.corpus import KINDS
from lab.convert.generate_states import StateShard
from lab.convert.train_draft_head import DrafterTraining, Samples, most_likely, rates_by_kind, split
from model.nn.block_drafter import CANDIDATES, CONFIDENT, BlockDrafterWeights, denoise, shapes
from model.nn.draft_head import DraftHeadWeights, advance, normalize
from model.nn.linear import Embedding

_CHUNK = 512
_RIDGE, _REGRESSION_SAMPLES = 0.02, 24_000
"""Of the regression that the maps of masks start from: its penalty, relative to the variance of the inputs."""

_DECAY = 0.85
"""Weight of a row's loss relative to the row before it, which must be right for this one to count."""

_OTHERS = 2048
"""Tokens that a step compares with the targets, drawn anew: the whole vocabulary would be most of the work."""

READ_SHARES = (0.7, 0.2, 0.1)
"""Share of samples in which the head has read no more token with the features of the first, one more, and two more: a
second step begins after such drafts."""

_LATER_SHARE = 0.5
"""Share of the masks after the first token whose loss is computed."""

_ALONE = 0.4
"""Weight of the loss of what was denoised, which must find the candidates by itself, and of that of the head alone."""

_MOST_STEPS = 3


@dataclass(frozen=True)
class BlockTrainingConfig:
    """How to train. Field names are keys of the file's metadata.

    Attributes:
        steps: of the optimizer; the learning rate decays until the last.
        seed: of the initial matrices and of the order of samples.
        rows: of a block, which drafts as many tokens.
        layers: of the drafter. The last one starts as the head's SwiGLU.
        batch: samples per step.
        rate: peak learning rate.
        variation: weight of total variation, which is how often a draft is rejected, beside cross-entropy.
        targets: tokens of the base model's distribution that are compared: its most likely ones.
        dropout: share of the features that are set to zero.
    """

    steps: int = 1600
    seed: int = 1
    rows: int = 5
    layers: int = 1
    batch: int = 288
    rate: float = 5e-4
    variation: float = 0.0
    targets: int = 16
    dropout: float = 0.1


@dataclass(frozen=True)
class _Blocks:
    """Blocks of rows after some places in the text.

    Attributes:
        read: [n, rows, size], the head's state after each token.
        following: [n, rows], where the token is that follows.
        valid: [n, rows], whether there is one.
    """

    read: Tensor
    following: Tensor
    valid: Tensor


class BlockTraining(DrafterTraining):
    """A training of a block drafter and its head.

    Args:
        shards: what to train on. The first responses of the first one are held out.
        embedding: the base model's embeddings.
        head: the model's draft head.
        head_rows: [n, hidden] float32, the rows of the base model's output head for the head's vocabulary.
        state_file: as in `Training`; a state of other settings, another text or another head is replaced.
    """

    def __init__(
        self,
        shards: Sequence[StateShard],
        embedding: Embedding,
        head: DraftHeadWeights,
        head_rows: Tensor,
        config: BlockTrainingConfig,
        state_file: Path | None = None,
    ) -> None:
        self._config, self._embedding = config, embedding
        held_out, rest = split(shards[0])
        self._samples, self._held_out = Samples.of([rest, *shards[1:]]), Samples.of([held_out])
        self._head, self._head_rows = head, head_rows
        self._matrices = {name: matrix.clone() for name, matrix in head.matrices.items()}
        trained = torch.isin(head.vocabulary, self._samples.tokens)
        self._trained_rows = head_rows[trained]
        self._targets = most_likely(self._samples, self._trained_rows, config.targets)
        self.tensors = self._initial_tensors()
        read = [self._samples.tokens, *head.matrices.values()]
        data = hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in read)).hexdigest()
        groups = [(config.rate, [*self.tensors.values(), *self._matrices.values()])]
        super().__init__(groups, state_file, {"text and head": data}, config, steps=config.steps)

    def weights(self) -> BlockDrafterWeights:
        """The drafter in its current state."""
        metadata = {
            **self._head.metadata,
            "block_recipe": json.dumps(asdict(self._config)),
            "block_tokens": str(len(self._samples.tokens)),
            "block_minutes": str(round(self._seconds / 60, 1)),
            "acceptance": json.dumps(self.probe(0)["all"]),
            "block_acceptance": json.dumps([self.probe(steps)["all"] for steps in range(1, _MOST_STEPS + 1)]),
        }
        matrices, tensors = (
            {name: tensor.detach() for name, tensor in some.items()} for some in (self._matrices, self.tensors)
        )
        return BlockDrafterWeights(
            DraftHeadWeights(matrices, self._head.vocabulary, self._head.base, metadata), tensors
        )

    @torch.no_grad()
    def probe(self, steps: int) -> dict[str, tuple[float, ...]]:
        """How often the first, the first two, … drafts equal the base model's choices on the held-out responses, by
        kind and in `all`.

        Args:
            steps: most denoising steps; 0 for the head alone.
        """
        samples, rows = self._held_out, self._config.rows
        hits, tried = torch.zeros(len(KINDS), rows), torch.zeros(len(KINDS), rows)
        for at in _chunks(len(samples.tokens)):
            at = at[at < samples.last[at]]
            blocks = self._blocks(samples, at, samples.features[at].float(), torch.zeros_like(at))
            drafts = self._drafts(blocks.read, steps)
            right = ((drafts == samples.tokens[blocks.following]) & blocks.valid).long().cumprod(1)
            for kind in range(len(KINDS)):
                of_kind = samples.kinds[at] == kind
                hits[kind] += right[of_kind].sum(0)
                tried[kind] += blocks.valid[of_kind].sum(0)
        return rates_by_kind(hits, tried)

    def _drafts(self, read: Tensor, steps: int) -> Tensor:
        """What is drafted while all drafts are right, as `cpu/block_drafter.py` does: [n, rows].

        Args:
            read: [n, rows, size], the head's state after each token.
        """
        logit_rows, everyone = self._head_rows @ self._matrices["output"], torch.arange(len(read))
        if not steps:
            return self._head.vocabulary[(read @ logit_rows.T).argmax(-1)]
        states, row = denoise(self.tensors, read[:, 0]), torch.zeros(len(read), dtype=torch.long)
        step, drafts = torch.ones_like(row), list[Tensor]()
        for count in range(self._config.rows):
            denoised = states[everyone, row]
            logits = denoised @ logit_rows.T
            near = logits.topk(min(CANDIDATES, logits.shape[1])).indices
            mixed = self._mixed(read[:, count], denoised, row) @ logit_rows.T
            best = torch.full_like(mixed, -torch.inf).scatter(1, near, mixed.gather(1, near)).softmax(-1).max(-1)
            drafts.append(self._head.vocabulary[best.indices])
            again = (best.values < CONFIDENT) & (step < steps)
            if count + 1 < self._config.rows and bool(again.any()):
                states[again] = denoise(self.tensors, read[again, count + 1])
            row, step = torch.where(again, 0, row + 1), step + again.long()
        return torch.stack(drafts, 1)

    def _mixed(self, read: Tensor, denoised: Tensor, row: Tensor) -> Tensor:
        """What predicts the token after a row: [..., size]."""
        share = self.tensors["mix"][row].to(read.dtype)
        return share[..., :1] * read + share[..., 1:] * denoised

    def _blocks(self, samples: Samples, at: Tensor, features: Tensor, more: Tensor) -> _Blocks:
        """Blocks of rows after some places.

        Args:
            at: [n], the token that the head reads first.
            features: [n, features] of the row that predicted it.
            more: [n], how many tokens it has read after that before the block begins.
        """
        context, last = normalize(features) @ self._matrices["features"].T, samples.last[at]
        read, state = list[Tensor](), None
        for count in range(self._config.rows + int(more.max())):
            token = samples.tokens[torch.minimum(at + count, last)]
            state, _ = advance(self._matrices, context, self._embedding(token).to(context.dtype), state)
            read.append(state)
        rows = more[:, None] + torch.arange(self._config.rows)
        places = at[:, None] + rows + 1
        states = torch.stack(read, 1)[torch.arange(len(at))[:, None], rows]
        return _Blocks(states, torch.minimum(places, last[:, None]), places <= last[:, None])

    def _add_gradients(self) -> float:
        config, samples = self._config, self._samples
        generator = torch.Generator().manual_seed(config.seed * 1_000_003 + self._step)
        at = torch.randint(len(samples.tokens), (config.batch,), generator=generator)
        more = torch.multinomial(torch.tensor(READ_SHARES), config.batch, replacement=True, generator=generator)
        possible = at + more < samples.last[at]
        at, more = at[possible], more[possible]
        features = samples.features[at].float()
        keep = torch.rand(features.shape, generator=generator) >= config.dropout
        with torch.autocast("cpu", torch.bfloat16):
            blocks = self._blocks(samples, at, features * keep / (1 - config.dropout), more)
            denoised = denoise(self.tensors, blocks.read[:, 0])
            mixed = self._mixed(blocks.read, denoised, torch.arange(config.rows))
        asked = blocks.valid & (torch.rand(blocks.valid.shape, generator=generator) < _LATER_SHARE)
        asked[:, 0] = True
        together, denoised_alone, head_alone = self._losses((mixed, denoised, blocks.read), blocks, asked)
        loss = together + _ALONE * denoised_alone + _ALONE * head_alone
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    def _losses(self, states: Sequence[Tensor], blocks: _Blocks, asked: Tensor) -> Iterator[Tensor]:
        """How far the predictions from some states [n, rows, size] are from the base model's, where `asked`."""
        chosen, config = asked.flatten().nonzero()[:, 0], self._config
        tokens, probabilities = (part[blocks.following.flatten()[chosen]] for part in self._targets)
        drawn = torch.randint(len(self._trained_rows), (_OTHERS,), generator=torch.Generator().manual_seed(self._step))
        compared = torch.unique(torch.cat((tokens.flatten(), drawn)))
        place, rows = torch.searchsorted(compared, tokens), self._trained_rows[compared]
        weight = _DECAY ** (chosen % config.rows).float()
        for one in states:
            with torch.autocast("cpu", torch.bfloat16):
                logits = (one.flatten(0, 1)[chosen] @ self._matrices["output"].T) @ rows.T
            scores = logits.float().log_softmax(-1).gather(1, place)
            each = -(probabilities * scores).sum(-1)
            if config.variation:
                each = each + config.variation * (1 - torch.minimum(scores.exp(), probabilities).sum(-1))
            yield (each * weight).sum() / weight.sum()

    @torch.no_grad()
    def _initial_tensors(self) -> dict[str, Tensor]:
        """A mask starts as the best linear prediction of what the head would compute for its row with the true token
        and fresh features (ridge regression), and goes through the head's own SwiGLU. Attention has no effect yet."""
        config, head, samples = self._config, self._head.matrices, self._samples
        (size, inner), generator = head["down"].shape, torch.Generator().manual_seed(config.seed)
        tensors = {
            name: torch.randn(*shape, generator=generator) / shape[-1] ** 0.5
            for name, shape in shapes(size, inner, config.layers, config.rows).items()
        }
        for layer in range(config.layers):
            tensors[f"heads{layer}"].zero_()
            tensors[f"down{layer}"].zero_()
        last = config.layers - 1
        tensors |= {f"gate_up{last}": head["gate_up"].clone(), f"down{last}": head["down"].clone()}
        tensors["places"].mul_(0.2)
        tensors["mix"][:] = torch.tensor([0.7, 0.3])
        tensors["mix"][0] = torch.tensor([1.0, 0.0])
        at = torch.randperm(len(samples.tokens), generator=generator)[:_REGRESSION_SAMPLES]
        at = at[at < samples.last[at]]
        state = self._blocks(samples, at, samples.features[at].float(), torch.zeros_like(at)).read[:, 0]
        masks = []
        for away in range(1, config.rows):
            known, to = state[at + away <= samples.last[at]], (at + away)[at + away <= samples.last[at]]
            fresh = normalize(samples.features[to].float()) @ head["features"].T
            embedded = normalize(self._embedding(samples.tokens[to]).float())
            fresh += embedded @ head["input"][:, : embedded.shape[1]].T
            gram = known.T @ known
            gram.diagonal().add_(_RIDGE * float(gram.diagonal().mean()))
            masks.append(torch.linalg.solve(gram, known.T @ fresh).T)
        tensors["masks"] = torch.cat(masks)
        return tensors


def _chunks(count: int) -> list[Tensor]:
    """The numbers up to `count`, as many at a time as are computed together."""
    return [torch.arange(start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK)]
