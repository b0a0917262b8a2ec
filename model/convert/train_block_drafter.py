"""Trains a block drafter on a model's responses and their states (`generate_states.py`, `own_text.py`).

A sample is a place in a response: the draft head has read the text up to it, and the tokens after it are masks. The
target is the base model's own distribution at every mask. The head stays as it is, so its states are computed once. An
interrupted training goes on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from model.convert.corpus import KINDS
from model.convert.generate_states import StateShard
from model.convert.train_draft_head import HeadTrainingProgress, Samples, Timer, rate_factor, rates, split
from model.nn.block_drafter import BlockDrafterWeights, denoise, shapes
from model.nn.draft_head import DraftHeadWeights, advance, normalize
from model.nn.linear import Embedding

_CHUNK = 512
_RIDGE = 0.02
"""Penalty of the regression that the maps of masks start from, relative to the variance of the inputs."""

_DECAY = 0.8
"""Weight of a row's loss relative to the row before it, which must be right for this one to count."""

_OTHERS = 2048
"""Tokens that a step compares with the targets, drawn anew: the whole vocabulary would be most of the work."""

_READ = (0.6, 0.25, 0.15)
"""Share of samples in which the head has read no more token with the features of the first, one more, and two more."""

_CONFIDENT, _CANDIDATES = 0.5, 64
"""As in `cpu/block_drafter.py`, which imports what machines that train need not have."""

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
        dropout: share of the head's state that is set to zero.
    """

    steps: int = 1000
    seed: int = 1
    rows: int = 5
    layers: int = 1
    batch: int = 256
    rate: float = 8e-4
    variation: float = 0.0
    targets: int = 16
    dropout: float = 0.1


class BlockTraining:
    """A training.

    Args:
        shards: what to train on. The first responses of the first one are held out.
        embedding: the base model's embeddings.
        head: the model's draft head.
        head_rows: [n, hidden] float32, the rows of the base model's output head for the head's vocabulary.
        state_file: the state of an interrupted training, which is continued.
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
        self._config, self._embedding, self._state_file = config, embedding, state_file
        held_out, rest = split(shards[0])
        self._samples, self._held_out = Samples.of([rest, *shards[1:]]), Samples.of([held_out])
        self._head, self._logit_rows = head, head_rows @ head.matrices["output"]
        trained = torch.isin(head.vocabulary, self._samples.tokens)
        self._trained_rows = self._logit_rows[trained]
        self._targets = self._most_likely(head_rows[trained].bfloat16())
        self._contexts = self._context(self._samples)
        self._states = self._read()
        self.tensors = self._initial_tensors()
        parameters = list(self.tensors.values())
        self._optimizer = torch.optim.AdamW(parameters, lr=config.rate, betas=(0.9, 0.98), weight_decay=0.05)
        self._step, self._timer = 0, Timer()
        self._resume()

    def run(self, on_progress: Callable[[HeadTrainingProgress], None], *, probe_every: int) -> None:
        """Train until the last step; measure the acceptance and save the state now and then."""
        while self._step < self._config.steps:
            with self._timer:
                loss = self._train_step()
            probed = self._step % probe_every == 0 or self._step == self._config.steps
            if probed:
                self._save()
            acceptance = self.probe(1) if probed else None
            seconds = round(self._timer.seconds, 1)
            on_progress(HeadTrainingProgress(self._step, self._config.steps, seconds, loss, acceptance))

    def weights(self) -> BlockDrafterWeights:
        """The drafter in its current state."""
        by_steps = [self.probe(steps)["all"] for steps in range(1, _MOST_STEPS + 1)]
        metadata = {
            **self._head.metadata,
            "block_recipe": json.dumps(asdict(self._config)),
            "block_tokens": str(len(self._samples.tokens)),
            "block_minutes": str(round(self._timer.seconds / 60, 1)),
            "block_acceptance": json.dumps(by_steps),
        }
        tensors = {name: tensor.detach() for name, tensor in self.tensors.items()}
        return BlockDrafterWeights(replace(self._head, metadata=metadata), tensors)

    @torch.no_grad()
    def probe(self, steps: int) -> dict[str, tuple[float, ...]]:
        """How often the first, the first two, … drafts equal the base model's choices on the held-out responses after
        some denoising steps, by kind and in `all`."""
        samples, rows = self._held_out, self._config.rows
        hits, tried = torch.zeros(len(KINDS), rows), torch.zeros(len(KINDS), rows)
        context = self._context(samples)
        for at in torch.arange(len(samples.tokens)).split_with_sizes(_sizes(len(samples.tokens))):
            at = at[at < samples.last[at]]
            places, valid = self._places(samples, at)
            right = (self._drafts(context[at], samples.tokens[at], steps) == samples.tokens[places]) & valid
            right = right.long().cumprod(1).bool()
            for kind in range(len(KINDS)):
                of_kind = samples.kinds[at] == kind
                hits[kind] += right[of_kind].sum(0)
                tried[kind] += valid[of_kind].sum(0)
        result = {name: rates(hits[kind], tried[kind]) for kind, name in enumerate(KINDS) if float(tried[kind, 0]) > 0}
        return {**result, "all": rates(hits.sum(0), tried.sum(0))}

    def _drafts(self, context: Tensor, newest: Tensor, steps: int) -> Tensor:
        """What is drafted after some tokens, as `cpu/block_drafter.py` does: [n, rows]."""
        rows, head, everyone = self._config.rows, self._head.matrices, torch.arange(len(newest))
        state, _ = advance(head, context, self._embedding(newest).float(), None)
        states = denoise(self.tensors, state)
        row, step = torch.zeros_like(newest), torch.ones_like(newest)
        drafts, unread = list[Tensor](), torch.zeros_like(newest)
        for count in range(rows):
            logits = states[everyone, row] @ self._logit_rows.T
            if count:
                near = logits.topk(min(_CANDIDATES, logits.shape[1])).indices
                among = torch.full_like(logits, -torch.inf).scatter(1, near, 0.0)
                corrected = logits + self._previous(drafts[-1]) @ self._logit_rows.T + among
                logits = torch.where((row == 0)[:, None], logits, corrected)
            best = logits.softmax(-1).max(-1)
            drafts.append(self._head.vocabulary[best.indices])
            again = (best.values < _CONFIDENT) & (step < steps)
            unread = unread + 1
            if bool(again.any()):
                read = state
                for back in range(int(unread.max()), 0, -1):  # what was drafted since the head read
                    after, _ = advance(head, context, self._embedding(drafts[count - back + 1]).float(), read)
                    read = torch.where((unread >= back)[:, None], after, read)
                state = torch.where(again[:, None], read, state)
                states = torch.where(again[:, None, None], denoise(self.tensors, read), states)
                unread = torch.where(again, 0, unread)
            row, step = torch.where(again, 0, row + 1), step + again.long()
        return torch.stack(drafts, 1)

    def _previous(self, tokens: Tensor) -> Tensor:
        """What the draft before a row adds to its state: [..., size]."""
        embedded = normalize(self._embedding(tokens.flatten()).float()).view(*tokens.shape, -1)
        return embedded @ self.tensors["previous"].T

    def _train_step(self) -> float:
        config, samples = self._config, self._samples
        generator = torch.Generator().manual_seed(config.seed * 1_000_003 + self._step)
        at = torch.randint(len(samples.tokens), (config.batch,), generator=generator)
        read = torch.multinomial(torch.tensor(_READ), config.batch, replacement=True, generator=generator)
        possible = at + read < samples.last[at]
        at, read = at[possible], read[possible]
        state = self._states[read, at].float()
        keep = torch.rand(state.shape, generator=generator) >= config.dropout
        places, valid = self._places(samples, at + read)
        asked = valid.clone()
        asked[:, 0] = False  # the head's
        chosen = asked.flatten().nonzero()[:, 0]
        tokens, probabilities = (part[places.flatten()[chosen]] for part in self._targets)
        drawn = torch.randint(len(self._trained_rows), (_OTHERS,), generator=generator)
        compared = torch.unique(torch.cat((tokens.flatten(), drawn)))
        with torch.autocast("cpu", torch.bfloat16):
            out = denoise(self.tensors, state * keep / (1 - config.dropout))
            out = out + self._previous(samples.tokens[places - 1])
            logits = out.flatten(0, 1)[chosen] @ self._trained_rows[compared].T
        scores = logits.float().log_softmax(-1).gather(1, torch.searchsorted(compared, tokens))
        each = -(probabilities * scores).sum(-1)
        if config.variation:
            each = each + config.variation * (1 - torch.minimum(scores.exp(), probabilities).sum(-1))
        weight = _DECAY ** (chosen % config.rows).float()
        loss = (each * weight).sum() / weight.sum().clamp(min=1e-6)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.tensors.values(), 1.0)
        for group in self._optimizer.param_groups:
            group["lr"] = config.rate * rate_factor(self._step / config.steps)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._step += 1
        return float(loss.detach())

    def _places(self, samples: Samples, at: Tensor) -> tuple[Tensor, Tensor]:
        """Where the token is that each row of the blocks after `at` predicts, and whether there is one."""
        places, last = at[:, None] + 1 + torch.arange(self._config.rows), samples.last[at][:, None]
        return torch.minimum(places, last), places <= last

    @torch.no_grad()
    def _context(self, samples: Samples) -> Tensor:
        matrix = self._head.matrices["features"]
        parts = samples.features.split_with_sizes(_sizes(len(samples.features)))
        return torch.cat([normalize(part.float()) @ matrix.T for part in parts])

    @torch.no_grad()
    def _read(self) -> Tensor:
        """The head's state after each token, and after one and two more with the features of the first: float16
        [reads, n, size]."""
        samples, states = self._samples, list[Tensor]()
        for more in range(len(_READ)):
            tokens = samples.tokens[torch.minimum(torch.arange(len(samples.tokens)) + more, samples.last)]
            before = states[-1].float() if states else torch.zeros_like(self._contexts)
            parts = []
            for at in torch.arange(len(tokens)).split_with_sizes(_sizes(len(tokens))):
                embedded = self._embedding(tokens[at]).float()
                state, _ = advance(self._head.matrices, self._contexts[at], embedded, before[at])
                parts.append(state.half())
            states.append(torch.cat(parts))
        return torch.stack(states)

    @torch.no_grad()
    def _most_likely(self, head: Tensor) -> tuple[Tensor, Tensor]:
        """The base model's most likely tokens, as indices of the trained ones, and their probabilities: [n, targets]
        each.

        Args:
            head: [n, hidden] bfloat16, the output head's rows for the trained tokens.
        """
        tokens, values = list[Tensor](), list[Tensor]()
        for part in self._samples.features.split_with_sizes(_sizes(len(self._samples.features))):
            best = (part[:, -head.shape[1] :].bfloat16() @ head.T).float().topk(min(self._config.targets, len(head)))
            tokens.append(best.indices)
            values.append(best.values.softmax(-1))
        return torch.cat(tokens), torch.cat(values)

    @torch.no_grad()
    def _initial_tensors(self) -> dict[str, Tensor]:
        """A mask starts as the best linear prediction of what the head would compute for its row with the true token
        and fresh features (ridge regression), and goes through the head's own SwiGLU. Attention has no effect yet."""
        config, head = self._config, self._head.matrices
        (size, inner), generator = head["down"].shape, torch.Generator().manual_seed(config.seed)
        tensors = {
            name: torch.randn(*shape, generator=generator) / shape[-1] ** 0.5
            for name, shape in shapes(size, inner, config.layers, config.rows, head["output"].shape[0]).items()
        }
        for layer in range(config.layers):
            tensors[f"heads{layer}"].zero_()
            tensors[f"down{layer}"].zero_()
        last = config.layers - 1
        tensors |= {f"gate_up{last}": head["gate_up"].clone(), f"down{last}": head["down"].clone()}
        tensors["places"].mul_(0.2)
        tensors["previous"].zero_()
        samples, state = self._samples, self._states[0]
        matrix = head["input"][:, : head["output"].shape[0]]
        embedded = (
            normalize(self._embedding(samples.tokens[at]).float())
            for at in torch.arange(len(state)).split_with_sizes(_sizes(len(state)))
        )
        fresh = self._contexts + torch.cat([part @ matrix.T for part in embedded])
        masks = []
        for away in range(1, config.rows):
            at = torch.arange(len(state))
            at = at[at + away <= samples.last[at]]
            gram = state[at].float().T @ state[at].float()
            gram.diagonal().add_(_RIDGE * float(gram.diagonal().mean()))
            masks.append(torch.linalg.solve(gram, state[at].float().T @ fresh[at + away]).T)
        tensors["masks"] = torch.cat(masks)
        for tensor in tensors.values():
            tensor.requires_grad_()
        return tensors

    def _save(self) -> None:
        if self._state_file is not None:
            state = {
                "config": asdict(self._config), "tensors": self.tensors, "optimizer": self._optimizer.state_dict(),
                "step": self._step, "seconds": self._timer.seconds,
            }  # fmt: skip
            partial = self._state_file.with_suffix(".part")
            torch.save(state, partial)
            partial.replace(self._state_file)

    def _resume(self) -> None:
        if self._state_file is None or not self._state_file.exists():
            return
        state = torch.load(self._state_file, weights_only=True)
        if state["config"] == asdict(self._config):
            with torch.no_grad():
                for name, tensor in self.tensors.items():
                    tensor.copy_(state["tensors"][name])
            self._optimizer.load_state_dict(state["optimizer"])
            self._step, self._timer.seconds = state["step"], state["seconds"]


def _sizes(count: int) -> list[int]:
    """Sizes of chunks that are computed at a time."""
    return [min(_CHUNK, count - start) for start in range(0, count, _CHUNK)]
