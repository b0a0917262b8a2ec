"""Stage 3: training an adapter. The loss falls, a training that was interrupted continues as if it had not been, and
the time and the memory of a step with the shape of a real model are measured."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from lab.benchmarks.gpu_acceptance.answers import holds
from lab.benchmarks.gpu_acceptance.context import Context, NotPossibleHere
from lab.benchmarks.gpu_acceptance.random_models import QWEN_05B, QWEN_15B, TINY, random_model
from lab.convert import training
from lab.convert.batch_generation import Prompt, generate
from lab.convert.corpus import Corpus, TrainingText
from lab.convert.train_adapter import AdapterProgress, AdapterTraining, TrainingConfig
from model.checkpoint.checkpoint import DecoderConfig
from model.engine.loader import LoadedModel

_STEPS = 40
TINY_TRAINING = TrainingConfig(
    None, _STEPS, rank=8, texts=4, rows=16, curriculum=((0.0, 2),), rate=1e-2, cross_entropy=1.0, whole_vocabulary=True
)
"""Both weights of the cross-entropy are 1, so that the losses of all steps can be compared."""


def run(context: Context) -> None:
    """Run the stage."""
    model = random_model(TINY, context.device, "float32")
    corpus = generated_corpus(model, 48, 6, 24)
    whole: list[float] = []
    context.check("the loss falls", lambda: loss_falls(model, corpus, whole))
    context.check("an interrupted training continues equally", lambda: resumes(model, corpus, whole))
    context.check("training steps of the 0.5B", lambda: real_shape(context, QWEN_05B))
    context.check("training steps of the 1.5B", lambda: real_shape(context, QWEN_15B))


def generated_corpus(
    model: LoadedModel, count: int, prompt_tokens: int, new_tokens: int, batch_size: int = 16, base: str = "random"
) -> Corpus:
    """Texts that the model continued from random tokens. `base` is the checksum of its weights."""
    draw = torch.Generator().manual_seed(1)
    high = model.decoder.config.vocab_size - 8
    prompts = [tuple(torch.randint(0, high, (prompt_tokens,), generator=draw).tolist()) for _ in range(count)]
    batch = [Prompt(prompt, new_tokens) for prompt in prompts]
    outputs = generate(model.decoder, batch, frozenset(), batch_size=batch_size, seed=1)
    spans = ((prompt_tokens, prompt_tokens + new_tokens),)
    texts = [TrainingText((*prompt, *new), spans, "chat") for prompt, new in zip(prompts, outputs, strict=True)]
    return Corpus(tuple(texts), base, {})


def loss_falls(model: LoadedModel, corpus: Corpus, losses: list[float]) -> Mapping[str, Any]:
    """Over all steps; `losses` gets that of each."""
    with tempfile.TemporaryDirectory() as folder:
        AdapterTraining(model, corpus, TINY_TRAINING, Path(folder)).run(
            lambda p: losses.append(p.loss), probe_every=None
        )
    first, last = mean(losses[:5]), mean(losses[-5:])
    holds(last < 0.975 * first, lambda: f"the loss went from {first:.3f} to {last:.3f}")
    return {"first": first, "last": last}


def resumes(model: LoadedModel, corpus: Corpus, whole: list[float]) -> Mapping[str, Any]:
    """The same training, stopped in the middle and started again: its losses are those of the whole one."""

    class Interrupted(Exception):
        pass

    losses: list[float] = []

    def interrupt(progress: AdapterProgress) -> None:
        if progress.step > _STEPS // 2:
            raise Interrupted

    def record(progress: AdapterProgress) -> None:
        losses.append(progress.loss)

    usual, training._SAVE_EVERY_S = training._SAVE_EVERY_S, 0.0
    with tempfile.TemporaryDirectory() as folder:
        with suppress(Interrupted):
            AdapterTraining(model, corpus, TINY_TRAINING, Path(folder)).run(interrupt, probe_every=None)
        training._SAVE_EVERY_S = usual
        AdapterTraining(model, corpus, TINY_TRAINING, Path(folder)).run(record, probe_every=None)
    expected = whole[-len(losses) :]
    farthest = max(abs(one - other) for one, other in zip(losses, expected, strict=True))
    holds(farthest < 0.02 * expected[0], lambda: f"the losses differ by up to {farthest:.4f}")
    return {"steps after": len(losses), "largest difference": farthest}


def real_shape(context: Context, config: DecoderConfig) -> Mapping[str, Any]:
    """Seconds a step and peak memory, after the steps that see a shape for the first time."""
    if not context.on_gpu:
        raise NotPossibleHere("takes a GPU")
    model = random_model(config, context.device, "bfloat16", source=context.device)
    began = time.perf_counter()
    corpus = generated_corpus(model, 384, 60, 120, 384)  # as many at a time as `convert data` generates
    generated_s = time.perf_counter() - began
    times: list[float] = []
    torch.cuda.reset_peak_memory_stats()
    with tempfile.TemporaryDirectory() as folder:
        AdapterTraining(model, corpus, TrainingConfig(None, 12), Path(folder)).run(
            lambda _: times.append(time.perf_counter()), probe_every=None
        )
    each = [later - earlier for earlier, later in pairwise(times[4:-1])]
    return {
        "s a step": mean(each),
        "peak GB": torch.cuda.max_memory_allocated() / 1e9,
        "generated tokens/s": 384 * 120 / generated_s,
    }
