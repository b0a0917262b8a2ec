"""Ablations of `rejoinder convert train`: short training runs that differ in one setting.

    python -m lab.benchmarks.conversion_ablations CORPUS FOLDER [--steps N] [--model MODEL] [--only VARIANT ...]

All runs start from the same state, use the same texts and number of steps, and are evaluated on the same held-out text.
Runs that FOLDER already contains are not repeated, so variants can be run one at a time; the table shows all of them.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from lab.convert.corpus import load_corpus
from lab.convert.draft_loss import NoiseBlocks, noise_hidden_states
from lab.convert.padded_batch import PaddedBatch
from lab.convert.train_adapter import AdapterProgress, AdapterTraining, TrainingConfig
from model.engine.loader import load_model
from model.hub.catalog import QWEN_05B
from model.nn.adapter import Adapter
from model.nn.decoder import Decoder
from model.nn.forward_batch import MASK
from server.serving.runtime import locate_model

BASELINE = TrainingConfig(minutes=None, texts=4)
"""The default settings, but with a third of the texts per step, so that a run of minutes has enough steps."""

RANDOM_TOKENS = "random tokens for masks"

# The names are also the names of folders with finished runs.
VARIANTS = {
    "as shipped": BASELINE,
    "as shipped, seed 2": replace(BASELINE, seed=2),
    "rank 8": replace(BASELINE, rank=8),
    "rank 16": replace(BASELINE, rank=16),
    "rank 64": replace(BASELINE, rank=64),
    RANDOM_TOKENS: BASELINE,
    "cross-entropy alone": replace(BASELINE, variation=0.0, cross_entropy=1.0),
    "total variation alone": replace(BASELINE, first_cross_entropy=0.0, cross_entropy=0.0),
    "all rows weigh the same": replace(BASELINE, decay=1.0),
    "no blocks at lower noise": replace(BASELINE, refined=0.0),
    "blocks of 4 at once": replace(BASELINE, curriculum=((0.0, 4),)),
    "then blocks of 8": replace(BASELINE, curriculum=((0.0, 2), (0.2, 4), (0.6, 8))),
}


@contextmanager
def random_tokens(seed: int) -> Iterator[None]:
    """Replace masks with random tokens of the whole vocabulary (Uno), in training and in the evaluation. Decoding
    supports only masks, so this is not part of `TrainingConfig` unless it proves worth its cost."""
    generator = torch.Generator().manual_seed(seed)

    def hidden_states(
        decoder: Decoder, adapter: Adapter, clean: PaddedBatch, text_length: int, blocks: NoiseBlocks
    ) -> Tensor:
        shape, device = blocks.tokens.shape, blocks.tokens.device
        random = torch.randint(decoder.config.vocab_size, shape, generator=generator).to(device)
        tokens = torch.where(blocks.tokens == MASK, random, blocks.tokens)
        return noise_hidden_states(decoder, adapter, clean, text_length, replace(blocks, tokens=tokens))

    with patch("lab.convert.train_adapter.noise_hidden_states", hidden_states):
        yield


def last_progress(folder: Path) -> AdapterProgress | None:
    """The last line of a run's log, if there is one."""
    log = folder / "log.jsonl"
    return AdapterProgress(**json.loads(log.read_text().splitlines()[-1])) if log.exists() else None


def results_table(folder: Path, steps: int) -> Table:
    """The finished runs in `folder`."""
    table = Table("settings", "acceptance by draft", "tokens per forward", "noise tokens", "seconds")
    for name in VARIANTS:
        progress = last_progress(folder / name)
        if progress is not None and progress.step == steps and progress.acceptance is not None:
            first_four = progress.acceptance[:4]  # four drafts are used, also with blocks of 8
            table.add_row(
                name, " ".join(f"{part:.3f}" for part in first_four), f"{1 + sum(first_four):.3f}",
                f"{progress.noise_tokens:,}", f"{progress.seconds:.0f}",
            )  # fmt: skip
    return table


def main() -> None:
    """Train the requested variants that are not finished yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--model", default=QWEN_05B.name)
    parser.add_argument("--only", action="append", choices=VARIANTS)
    arguments = parser.parse_args()
    console = Console(stderr=True)
    corpus = load_corpus(arguments.corpus)
    path = locate_model(arguments.model, console)
    model = load_model(path, precision="bfloat16", adapter="none", turn_completion="none")
    for name in arguments.only or VARIANTS:
        config, folder = replace(VARIANTS[name], steps=arguments.steps), arguments.folder / name
        previous = last_progress(folder)
        if previous is not None and previous.step == arguments.steps:
            continue

        def report(progress: AdapterProgress, name: str = name) -> None:
            console.print(f"{name}: step {progress.step}, variation {progress.variation}, {progress.acceptance or ''}")

        with random_tokens(config.seed) if name == RANDOM_TOKENS else nullcontext():
            AdapterTraining(model, corpus, config, folder).run(report, probe_every=None)
    Console(width=120).print(results_table(arguments.folder, arguments.steps))


if __name__ == "__main__":
    main()
