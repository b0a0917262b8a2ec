"""What each part of the recipe of `rejoinder convert train` is worth: short runs that differ in one thing.

    python -m tests.bench.ablations CORPUS FOLDER [--steps N] [--model MODEL] [--only VARIANT ...]

Every run begins alike, sees the same texts and as many steps, and is probed on the same held-out text. What FOLDER
holds already is not trained again, so variants can be run one at a time; the table is of all that are there.
"""

from __future__ import annotations

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

from model.adapter import Adapter
from model.convert.corpus import load_corpus
from model.convert.lanes import Lanes
from model.convert.student import Blocks, noise_states
from model.convert.train import Moment, Plan, train
from model.engine import load_model
from model.transformer import MASK, Decoder
from server.loading import DEFAULT_MODEL, locate

USUAL = Plan(minutes=None, texts=4)
"""The recipe as shipped but for a third of the texts a step, so that a run of minutes has steps enough."""

RANDOM = "random tokens for masks"

VARIANTS = {
    "as shipped": USUAL,
    "as shipped, seed 2": replace(USUAL, seed=2),
    "rank 8": replace(USUAL, rank=8),
    "rank 16": replace(USUAL, rank=16),
    "rank 64": replace(USUAL, rank=64),
    RANDOM: USUAL,
    "cross-entropy alone": replace(USUAL, variation=0.0, cross_entropy=1.0),
    "total variation alone": replace(USUAL, first_cross_entropy=0.0, cross_entropy=0.0),
    "all rows weigh the same": replace(USUAL, decay=1.0),
    "no blocks at lower noise": replace(USUAL, refined=0.0),
    "blocks of 4 at once": replace(USUAL, curriculum=((0.0, 4),)),
    "then blocks of 8": replace(USUAL, curriculum=((0.0, 2), (0.2, 4), (0.6, 8))),
}


@contextmanager
def random_tokens(seed: int) -> Iterator[None]:
    """Rows hold a token drawn from the whole vocabulary where they would hold the mask (Uno), in training and in the
    probe. Decoding knows only masks, so this stays out of `Plan` for as long as it does not pay."""
    draw = torch.Generator().manual_seed(seed)

    def states(decoder: Decoder, adapter: Adapter, clean: Lanes, seen: int, blocks: Blocks) -> Tensor:
        drawn = torch.randint(decoder.config.vocab_size, blocks.tokens.shape, generator=draw).to(blocks.tokens.device)
        tokens = torch.where(blocks.tokens == MASK, drawn, blocks.tokens)
        return noise_states(decoder, adapter, clean, seen, replace(blocks, tokens=tokens))

    with patch("model.convert.train.noise_states", states):
        yield


def last_moment(folder: Path) -> Moment | None:
    """Where a run stands by its log."""
    log = folder / "log.jsonl"
    return Moment(**json.loads(log.read_text().splitlines()[-1])) if log.exists() else None


def table(folder: Path, steps: int) -> Table:
    """Of the runs in `folder` that are finished."""
    shown = Table("recipe", "accepted, slot by slot", "tokens per forward", "noise tokens", "seconds")
    for name in VARIANTS:
        moment = last_moment(folder / name)
        if moment is not None and moment.step == steps and moment.acceptance is not None:
            four = moment.acceptance[:4]  # the drafts that are made, also of blocks of 8
            shown.add_row(
                name, " ".join(f"{part:.3f}" for part in four), f"{1 + sum(four):.3f}",
                f"{moment.noise_tokens:,}", f"{moment.seconds:.0f}",
            )  # fmt: skip
    return shown


def main() -> None:
    """Train what is asked for and not there yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--only", action="append", choices=VARIANTS)
    asked = parser.parse_args()
    console = Console(stderr=True)
    corpus = load_corpus(asked.corpus)
    model = load_model(locate(asked.model, console), precision="bfloat16", adapter="none", ending="none")
    for name in asked.only or VARIANTS:
        plan, folder = replace(VARIANTS[name], steps=asked.steps), asked.folder / name
        seen = last_moment(folder)
        if seen is not None and seen.step == asked.steps:
            continue

        def report(moment: Moment, name: str = name) -> None:
            console.print(f"{name}: step {moment.step}, variation {moment.variation}, {moment.acceptance or ''}")

        with random_tokens(plan.seed) if name == RANDOM else nullcontext():
            train(model, corpus, plan, folder, report=report, probe_every=None)
    Console(width=120).print(table(asked.folder, asked.steps))


if __name__ == "__main__":
    main()
