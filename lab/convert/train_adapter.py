"""`rejoinder convert train`: trains an adapter that drafts for a frozen base model, within some steps or some time."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lab.convert.batch_generation import top_logits
from lab.convert.corpus import Corpus, TrainingText
from lab.convert.draft_loss import (
    NoiseBlocks,
    draft_loss_gradient,
    first_blocks,
    noise_hidden_states,
    partially_unmasked,
    sample_blocks,
)
from lab.convert.padded_batch import PaddedBatch, SystemPromptCache, pad_sequences
from lab.convert.training import Training, TrainingProgress
from model.checkpoint.gguf import BadModelFile
from model.engine.loader import LoadedModel
from model.nn.adapter import Adapter, LowRank, random_adapter
from model.nn.decoder import Decoder

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
class AdapterProgress(TrainingProgress):
    """The state after a step; one line of `log.jsonl`, with these field names as keys.

    Attributes:
        noise_tokens: rows trained on so far.
        acceptance: on held-out text, how often the first, the first two, … drafts all match the base model; None if it
            was not measured after this step.
    """

    noise_tokens: int
    variation: float
    tokens_per_second: float
    acceptance: tuple[float, ...] | None = None


class AdapterTraining(Training):
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
        vocabulary = _unique(torch.tensor([token for text in texts for token in text.tokens]))
        self._text_vocabulary = None if config.whole_vocabulary else vocabulary.to(decoder.device)
        self._noise_tokens, self._variation = 0, 0.0
        self._acceptance: tuple[float, ...] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        lows = [low for layer in self._adapter.layers for low in layer.values()]
        groups = [
            (config.rate, [self._adapter.mask, *(low.a for low in lows)]),
            (2 * config.rate, [low.b for low in lows]),
        ]
        super().__init__(
            groups, folder / "state.pt", {"base": corpus.base}, replace(config, minutes=None, steps=None),
            steps=config.steps, minutes=config.minutes,
        )  # fmt: skip

    def run(
        self,
        on_progress: Callable[[AdapterProgress], None] = lambda progress: None,
        is_over: Callable[[], bool] = lambda: False,
        *,
        probe_every: float | None = 300.0,
    ) -> bool:
        """Train. Writes `state.pt` (to resume), `adapter.safetensors` and `log.jsonl` into `folder`; see `Training`.

        Args:
            probe_every: seconds between two evaluations on held-out text; None for one evaluation at the end.
        """
        probed_s, before = -math.inf, (self._noise_tokens, self._seconds)
        with (self._folder / "log.jsonl").open("a", encoding="utf-8") as log:

            def report(progress: TrainingProgress) -> None:
                nonlocal probed_s, before
                acceptance = None
                if progress.done == 1 or (probe_every is not None and self._seconds - probed_s >= probe_every):
                    acceptance = self._acceptance = self.probe()
                    probed_s = self._seconds
                speed = (self._noise_tokens - before[0]) / (self._seconds - before[1])
                before = self._noise_tokens, self._seconds
                state = AdapterProgress(
                    **vars(progress), noise_tokens=self._noise_tokens, variation=round(self._variation, 4),
                    tokens_per_second=round(speed, 1), acceptance=acceptance,
                )  # fmt: skip
                log.write(json.dumps(asdict(state)) + "\n")
                log.flush()
                on_progress(state)

            return super().run(report, is_over)

    def _add_gradients(self) -> float:
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
        gradient, value, variation = draft_loss_gradient(
            self._decoder, student, teacher, blocks, cross_entropy=cross_entropy, variation=config.variation,
            decay=config.decay, vocabulary=self._vocabulary(generator),
        )  # fmt: skip
        torch.autograd.backward([student], [gradient])
        self._variation = variation
        self._noise_tokens += int(blocks.valid.sum())
        return value

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

    def adapter(self) -> Adapter:
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
        super()._save()
        self.adapter().save(self._folder / "adapter.safetensors")

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "noise_tokens": self._noise_tokens, "acceptance": self._acceptance}

    def _restore(self, state: Mapping[str, Any]) -> None:
        super()._restore(state)
        self._noise_tokens, self._acceptance = state["noise_tokens"], state["acceptance"]


def _initial_adapter(decoder: Decoder, config: TrainingConfig) -> Adapter:
    """An adapter that changes nothing yet. The embedding of a masked row is the mean of all embeddings."""
    device = decoder.device
    initial = random_adapter(decoder.config, config.rank, config.num_drafts, config.seed, b_std=0.0)
    ids = torch.arange(decoder.config.vocab_size, device=device)
    sums = [decoder.embedding(chunk).float().sum(0) for chunk in torch.split(ids, 8192)]
    return replace(initial.to(device, torch.float32), mask=torch.stack(sums).sum(0) / len(ids))


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
