"""`rejoinder convert train`: trains an adapter that drafts for a frozen base model, within a budget of steps or time.

All random choices of a step depend only on the seed and the step's number, so an interrupted run continues exactly as
it would have. With a budget of steps, two runs on the same device are identical. With a budget of time, the learning
rate schedule follows the clock, so that the rate has decayed when the time is over.
"""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from model.checkpoint.gguf import BadModelFile
from model.convert.batch_generation import top_logits
from model.convert.corpus import Corpus, TrainingText
from model.convert.draft_loss import (
    DraftLoss,
    NoiseBlocks,
    draft_loss_gradient,
    first_blocks,
    noise_hidden_states,
    partially_unmasked,
    sample_blocks,
)
from model.convert.padded_batch import PaddedBatch, SystemPromptCache, pad_sequences
from model.convert.train_draft_head import rate_factor
from model.engine.loader import LoadedModel
from model.hub.store import write_atomically
from model.nn.adapter import Adapter, LowRank, random_adapter
from model.nn.decoder import Decoder

RATE_DECAY = 0.02, 0.1
"""Of the learning rate of low-rank updates: `warm_up` and `least` of `rate_factor`."""

_SAVE_EVERY_S = 120.0
"""Seconds between two checkpoints: the most that a crash may cost."""

_HELD_OUT = 48
"""Number of texts that are not trained on, to measure how many drafts would be accepted."""

_PROBE_BLOCKS = 24
"""Blocks per held-out text that are evaluated."""

_RANDOM_TOKENS = 4096
"""If probabilities are compared only over the tokens of the texts, this many random others are added in each step, so
that no other token can gain probability unnoticed."""

_WINDOW_STEPS = 8
"""Texts are sorted by length within windows of this many steps."""


@dataclass(frozen=True)
class TrainingConfig:
    """How to train. Field names are keys of the saved state and of the adapter's metadata.

    Attributes:
        minutes, steps: the budget; the one that is not None counts.
        seed: seed of the initial adapter and of all random choices.
        rank: rank of the low-rank matrices.
        texts, rows: texts per step, and noise rows per text (shorter blocks are more blocks).
        curriculum: pairs of a share of the budget and the block size from there on.
        rate: peak learning rate of A; B learns twice as fast (LoRA+, arXiv 2402.12354).
        refined: share of blocks that already contain some tokens, as in a second denoising step.
        variation: weight of the total variation.
        first_cross_entropy, cross_entropy: weight of the cross-entropy in the first 15 % of the budget and after.
        decay: weight of a row relative to the row before it.
        whole_vocabulary: compare probabilities over the whole vocabulary, not only over the tokens of the text and some
            thousand others. The head is a quarter of the work.
    """

    minutes: float | None = 90.0
    steps: int | None = None
    seed: int = 1
    rank: int = 32
    texts: int = 12
    rows: int = 96
    curriculum: tuple[tuple[float, int], ...] = ((0.0, 2), (0.2, 4))
    rate: float = 1e-3
    refined: float = 0.15
    variation: float = 1.0
    first_cross_entropy: float = 1.0
    cross_entropy: float = 0.2
    decay: float = 0.8
    whole_vocabulary: bool = False

    @property
    def num_drafts(self) -> int:
        """Rows of the largest block."""
        return max(size for _, size in self.curriculum)


@dataclass(frozen=True)
class TrainingProgress:
    """The state of the training after a step; one line of `log.jsonl`, with these field names as keys.

    Attributes:
        done: share of the budget used.
        noise_tokens: rows trained on so far.
        acceptance: on held-out text, how often the first, the first two, … drafts all match the base model; None if it
            was not measured after this step.
    """

    step: int
    seconds: float
    done: float
    noise_tokens: int
    loss: float
    variation: float
    tokens_per_second: float
    acceptance: tuple[float, ...] | None = None


class AdapterTraining:
    """A training of an adapter, or its continuation if `folder` contains one.

    Args:
        model: the base model, with float weights.
        base_bytes: size of the model's file, by which a bundled adapter is found.

    Raises:
        BadModelFile: the folder contains a different training, or the corpus is too small.
    """

    def __init__(
        self, model: LoadedModel, corpus: Corpus, config: TrainingConfig, folder: Path, base_bytes: int = 0
    ) -> None:
        decoder = model.decoder
        texts = [text for text in corpus.texts if any(end - begin > 2 for begin, end in text.spans)]
        if len(texts) < 2 * config.texts:
            raise BadModelFile(
                f"{len(texts)} texts are too few to train on: generate more with `rejoinder convert data`"
            )
        num_held_out = min(_HELD_OUT, len(texts) // 4)
        self._held_out, self._texts = texts[:num_held_out], texts[num_held_out:]
        self._decoder, self._config, self._folder, self._base = decoder, config, folder, corpus.base
        self._about, self._base_bytes = corpus.about, base_bytes
        longest = max(len(text.tokens) for text in texts)
        self._batch = PaddedBatch(decoder, config.texts, longest + config.num_drafts)
        self._system_prompts = SystemPromptCache(self._batch, model.stop_tokens)
        self._lengths = [len(text.tokens) - self._system_prompts.length(text.tokens) for text in self._texts]
        self._adapter = _initial_adapter(decoder, config)
        self._parameters = _parameters(self._adapter)
        b_matrices = [low.b for layer in self._adapter.layers for low in layer.values()]
        others = [parameter for parameter in self._parameters if all(parameter is not b for b in b_matrices)]
        groups = [{"params": others, "scale": 1.0}, {"params": b_matrices, "scale": 2.0}]
        self._optimizer = torch.optim.AdamW(groups, lr=config.rate, betas=(0.9, 0.95), weight_decay=0.0)
        vocabulary = _unique(torch.tensor([token for text in texts for token in text.tokens]))
        self._text_vocabulary = None if config.whole_vocabulary else vocabulary.to(decoder.device)
        self._step = self._noise_tokens = 0
        self._seconds = 0.0
        self._acceptance: tuple[float, ...] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._resume()

    def run(
        self,
        on_progress: Callable[[TrainingProgress], None] = lambda progress: None,
        *,
        probe_every: float | None = 300.0,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Adapter:
        """Train. Writes `state.pt` (to resume), `adapter.safetensors` and `log.jsonl` into `folder` every two minutes.

        Args:
            probe_every: seconds between two evaluations on held-out text; None for one evaluation at the end.
            is_over: asked before each step; if so, the training is saved and stops.

        Returns:
            The adapter, as far as it is trained.
        """
        saved_s = self._seconds
        probed_s = -math.inf
        log = (self._folder / "log.jsonl").open("a", encoding="utf-8")
        with log:
            while self._done() < 1 and not is_over():
                started, tokens_before = time.monotonic(), self._noise_tokens
                loss, variation = self._train_step()
                self._seconds += time.monotonic() - started
                acceptance = None
                due = probe_every is not None and self._seconds - probed_s >= probe_every
                if due or self._done() >= 1:
                    acceptance = self._acceptance = self.probe()
                    probed_s = self._seconds
                speed = (self._noise_tokens - tokens_before) / (time.monotonic() - started)
                progress = TrainingProgress(
                    self._step, round(self._seconds, 1), min(self._done(), 1.0), self._noise_tokens,
                    round(loss, 4), round(variation, 4), round(speed, 1), acceptance,
                )  # fmt: skip
                log.write(json.dumps(asdict(progress)) + "\n")
                log.flush()
                on_progress(progress)
                if self._seconds - saved_s >= _SAVE_EVERY_S:
                    self._save()
                    saved_s = self._seconds
        self._save()
        return self._finished_adapter()

    def _done(self) -> float:
        config = self._config
        if config.steps is not None:
            return self._step / config.steps
        return self._seconds / (60 * (config.minutes or 0.001))

    def _train_step(self) -> tuple[float, float]:
        """Run one training step; returns its loss and total variation."""
        config, done = self._config, self._done()
        generator = torch.Generator().manual_seed(config.seed * 1_000_003 + self._step)
        size = next(size for since, size in reversed(config.curriculum) if done >= since)
        texts = self._select_texts()
        blocks = _to_device(sample_blocks(texts, size, config.rows // size, generator), self._decoder.device)
        padded, states, starts = self._run_clean(texts)
        adapter = self._adapter.to(self._decoder.device, self._decoder.dtype)
        length = padded.shape[1]
        if config.refined:
            first = first_blocks(blocks, max(1, round(config.refined * config.rows / size)))
            with torch.no_grad():
                drafts = self._argmax(noise_hidden_states(self._decoder, adapter, self._batch, length, first))
            blocks = partially_unmasked(blocks, drafts, padded, generator)
        teacher = _states_at(states, blocks.positions - starts)
        student = noise_hidden_states(self._decoder, adapter, self._batch, length, blocks)
        cross_entropy = config.first_cross_entropy if done < 0.15 else config.cross_entropy
        loss = DraftLoss(cross_entropy, config.variation, config.decay, self._vocabulary(generator))
        gradient, value, variation = draft_loss_gradient(self._decoder, student, teacher, blocks, loss)
        torch.autograd.backward([student], [gradient])
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        for group in self._optimizer.param_groups:
            group["lr"] = config.rate * group["scale"] * rate_factor(done, *RATE_DECAY)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._step += 1
        self._noise_tokens += int(blocks.valid.sum())
        return value, variation

    def _select_texts(self) -> list[TrainingText]:
        """The texts of this step. Each epoch uses every text once, in a new order. The texts of a step have similar
        lengths, because all are padded to the longest."""
        count, config = self._config.texts, self._config
        epoch_steps = len(self._texts) // count
        draw = random.Random(f"{config.seed} {self._step // epoch_steps}")
        order = list(range(len(self._texts)))
        draw.shuffle(order)
        windows = [order[n : n + _WINDOW_STEPS * count] for n in range(0, len(order), _WINDOW_STEPS * count)]
        by_length = [n for window in windows for n in sorted(window, key=lambda n: self._lengths[n])]
        start = draw.sample(range(epoch_steps), epoch_steps)[self._step % epoch_steps] * count
        return [self._texts[n] for n in by_length[start : start + count]]

    def _run_clean(self, texts: Sequence[TrainingText]) -> tuple[Tensor, Tensor, Tensor]:
        """Run the clean text, once for all blocks of these texts.

        Returns:
            The padded texts [texts, tokens]; the base model's states after the system prompts; and the position at
            which those begin, [texts, 1].
        """
        device = self._decoder.device
        heads = [self._system_prompts.fill(slot, text.tokens) for slot, text in enumerate(texts)]
        padded = self._pad([text.tokens for text in texts])
        remaining = self._pad([text.tokens[head:] for text, head in zip(texts, heads, strict=True)])
        starts, slots = torch.tensor(heads, device=device), torch.arange(len(texts), device=device)
        states = self._batch.forward(remaining.to(device), starts, slots, attended=padded.shape[1])
        return padded.to(device), states, starts[:, None]

    def _pad(self, sequences: Sequence[Sequence[int]]) -> Tensor:
        return pad_sequences(sequences, self._batch.padded(max(map(len, sequences))))

    def _argmax(self, states: Tensor) -> Tensor:
        return top_logits(self._decoder, states.flatten(0, 1), 1)[1].view(states.shape[:2])

    def _vocabulary(self, generator: torch.Generator) -> Tensor | None:
        if self._text_vocabulary is None:
            return None
        others = torch.randint(self._decoder.config.vocab_size, (_RANDOM_TOKENS,), generator=generator)
        return _unique(torch.cat((self._text_vocabulary, others.to(self._text_vocabulary.device))))

    @torch.no_grad()
    def probe(self) -> tuple[float, ...]:
        """Acceptance on the held-out texts, by number of drafts, with all drafts made in one forward pass."""
        generator = torch.Generator().manual_seed(self._config.seed)
        adapter = self._adapter.to(self._decoder.device, self._decoder.dtype)
        num_drafts = self._config.num_drafts
        accepted = torch.zeros(num_drafts)
        tried = torch.zeros(num_drafts)
        for start in range(0, len(self._held_out), self._config.texts):
            texts = self._held_out[start : start + self._config.texts]
            blocks = _to_device(sample_blocks(texts, num_drafts, _PROBE_BLOCKS, generator), self._decoder.device)
            padded, states, starts = self._run_clean(texts)
            teacher = self._argmax(_states_at(states, blocks.positions - starts))
            student_states = noise_hidden_states(self._decoder, adapter, self._batch, padded.shape[1], blocks)
            shape = (*blocks.starts.shape, num_drafts)
            valid = blocks.valid.view(shape)
            matches = ((self._argmax(student_states) == teacher).view(shape) & valid).cumprod(-1)
            accepted += matches.sum((0, 1)).cpu()
            tried += valid.sum((0, 1)).cpu()
        return tuple(round(float(part), 4) for part in accepted / tried.clamp(min=1))

    def _finished_adapter(self) -> Adapter:
        """The adapter in its current state, with metadata."""
        config = self._config
        metadata = {
            "recipe": json.dumps({k: v for k, v in asdict(config).items() if k != "seed"}),
            "seed": str(config.seed),
            "base_bytes": str(self._base_bytes),
            "noise_tokens": str(self._noise_tokens),
            "steps": str(self._step),
            "minutes": str(round(self._seconds / 60, 1)),
            "device": _device_name(self._decoder.device),
            "slot_acceptance": json.dumps(self._acceptance),
            "text": json.dumps(self._about),
        }
        adapter = self._adapter.to(torch.device("cpu"), torch.float32)
        layers = tuple(
            {name: LowRank(low.a.detach(), low.b.detach()) for name, low in layer.items()} for layer in adapter.layers
        )
        return Adapter(adapter.mask.detach(), layers, self._base, config.num_drafts, metadata)

    def _save(self) -> None:
        state = {
            "plan": json.dumps(asdict(self._config)),
            "base": self._base,
            "leaves": self._parameters,
            "optimizer": self._optimizer.state_dict(),
            "step": self._step,
            "noise_tokens": self._noise_tokens,
            "seconds": self._seconds,
            "acceptance": self._acceptance,
        }
        write_atomically(self._folder / "state.pt", lambda partial: torch.save(state, partial))
        self._finished_adapter().save(self._folder / "adapter.safetensors")

    def _resume(self) -> None:
        path = self._folder / "state.pt"
        if not path.exists():
            return
        try:
            state = torch.load(path, map_location=self._decoder.device, weights_only=True)
            saved = json.loads(state["plan"])
        except Exception as error:  # torch.load raises whatever unpickling raises
            raise BadModelFile(f"{path} cannot be read ({error}): remove it to start over") from None
        current, default = (json.loads(json.dumps(asdict(config))) for config in (self._config, TrainingConfig()))
        saved = {**default, **saved}  # a setting that an older state lacks was added later, with today's default
        differing = [key for key in current if current[key] != saved[key] and key not in ("minutes", "steps")]
        if state["base"] != self._base or differing:
            what = ", ".join(differing) or "other weights"
            raise BadModelFile(
                f"{self._folder} contains a training with different settings ({what}): choose another folder"
            )
        with torch.no_grad():
            for parameter, value in zip(self._parameters, state["leaves"], strict=True):
                parameter.copy_(value)
        self._optimizer.load_state_dict(state["optimizer"])
        self._step, self._noise_tokens = int(state["step"]), int(state["noise_tokens"])
        self._seconds = float(state["seconds"])
        self._acceptance = state.get("acceptance")


def _initial_adapter(decoder: Decoder, config: TrainingConfig) -> Adapter:
    """An adapter that changes nothing yet. The embedding of a masked row is the mean of all embeddings."""
    device = decoder.device
    initial = random_adapter(decoder.config, config.rank, config.num_drafts, config.seed, b_std=0.0)
    ids = torch.arange(decoder.config.vocab_size, device=device)
    sums = [decoder.embedding(chunk).float().sum(0) for chunk in torch.split(ids, 8192)]
    adapter = replace(initial.to(device, torch.float32), mask=torch.stack(sums).sum(0) / len(ids))
    for parameter in _parameters(adapter):
        parameter.requires_grad_()
    return adapter


def _parameters(adapter: Adapter) -> list[Tensor]:
    lows = [low for layer in adapter.layers for low in layer.values()]
    return [adapter.mask, *(low.a for low in lows), *(low.b for low in lows)]


def _states_at(states: Tensor, positions: Tensor) -> Tensor:
    """The states [texts, tokens, hidden] at positions [texts, rows]."""
    index = positions.clamp(max=states.shape[1] - 1)
    return states.gather(1, index[..., None].expand(-1, -1, states.shape[-1]))


def _to_device(blocks: NoiseBlocks, device: torch.device) -> NoiseBlocks:
    return NoiseBlocks(blocks.size, blocks.starts.to(device), blocks.tokens.to(device), blocks.valid.to(device))


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{os.cpu_count()} CPU cores"


def _unique(ids: Tensor) -> Tensor:
    unique_ids: Tensor = torch.unique(ids)
    return unique_ids
