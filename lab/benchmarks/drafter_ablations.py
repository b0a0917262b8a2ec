"""Ablations of `rejoinder convert drafter`: short trainings of a block drafter that differ in one setting.

    python -m lab.benchmarks.drafter_ablations TEXT FOLDER [--steps N] [--tokens N] [--model MODEL] [--only VARIANT ...]

All begin with the model's bundled draft head, and read the same states of the first TOKENS of TEXT, which `convert
drafter --keep-text` wrote. What FOLDER already contains is not repeated, so variants can be run one at a time; the
table shows all of them. Targets that are sampled from the base model's distribution are not a variant: in expectation
their cross-entropy is that with the distribution.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import argparse
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from unittest.mock import patch

from rich.console import Console
from rich.progress import track
from rich.table import Table

from lab.convert.generate_states import StateShard
from lab.convert.own_text import load_text, with_states
from lab.convert.train_block_drafter import READ_SHARES, BlockTraining, BlockTrainingConfig
from lab.convert.training import TrainingProgress
from model.checkpoint.checkpoint import open_checkpoint
from model.engine.bundled import BUNDLED_DRAFT_HEADS, bundled, weights_checksum
from model.engine.loader import LoadedModel, load_model, output_rows
from model.hub.catalog import QWEN_05B
from model.nn.draft_head import DraftHeadWeights, load_draft_head
from server.serving.runtime import locate_model

SHIPPED = BlockTrainingConfig()


@dataclass(frozen=True)
class Variant:
    """One setting.

    Attributes:
        read: as `READ_SHARES`, what a second step meets in training.
        last_layer_only: whether the states of earlier layers are hidden from the drafter.
    """

    config: BlockTrainingConfig = SHIPPED
    read: tuple[float, ...] = READ_SHARES
    last_layer_only: bool = False


VARIANTS = {
    "as shipped": Variant(),
    "as shipped, seed 2": Variant(replace(SHIPPED, seed=2)),
    "blocks of 3": Variant(replace(SHIPPED, rows=3)),
    "blocks of 7": Variant(replace(SHIPPED, rows=7)),
    "two layers": Variant(replace(SHIPPED, layers=2)),
    "last layer's states alone": Variant(last_layer_only=True),
    "no features are dropped": Variant(replace(SHIPPED, dropout=0.0)),
    "a third of the features are dropped": Variant(replace(SHIPPED, dropout=0.33)),
    "a second step is not trained": Variant(read=(1.0, 0.0, 0.0)),
    "greedy targets": Variant(replace(SHIPPED, targets=1)),
    "total variation beside cross-entropy": Variant(replace(SHIPPED, variation=1.0)),
    "almost only total variation": Variant(replace(SHIPPED, variation=10.0)),
}


@dataclass(frozen=True)
class Result:
    """A finished training.

    Attributes:
        acceptance: how often the first, the first two, … drafts were accepted after 0, 1, 2, … denoising steps, by kind
            of text and in `all`. None denoised: the head alone.
    """

    variant: str
    steps: int
    seconds: float
    acceptance: list[dict[str, tuple[float, ...]]]


def load_results(folder: Path, steps: int) -> dict[str, Result]:
    """The finished trainings of so many steps, by variant."""
    file = folder / "results.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    results = [Result(**json.loads(line)) for line in lines]
    return {result.variant: result for result in results if result.steps == steps}


def train(
    name: str, steps: int, shard: StateShard, model: LoadedModel, path: Path, head: DraftHeadWeights, console: Console
) -> Result:
    """Train one variant."""
    variant = VARIANTS[name]
    rows = output_rows(open_checkpoint(path), head.vocabulary)
    if variant.last_layer_only:
        features = shard.features.clone()
        features[:, : -rows.shape[1]] = 0
        shard = replace(shard, features=features)
    with patch("lab.convert.train_block_drafter.READ_SHARES", variant.read):
        training = BlockTraining([shard], model.decoder.embedding, head, rows, replace(variant.config, steps=steps))
        progress: list[TrainingProgress] = []
        training.run(progress.append)
    seconds = progress[-1].seconds
    result = Result(name, steps, seconds, [training.probe(count) for count in range(3)])
    console.print(f"{name}: {seconds:.0f} s, {result.acceptance[1]['all']}")
    return result


def results_table(results: dict[str, Result]) -> Table:
    """What was accepted, all kinds of text together."""
    table = Table("setting", "head alone", "1 step", "2 steps", "chat, 1 step", "seconds")
    for result in results.values():
        columns = [result.acceptance[count]["all"] for count in range(3)] + [result.acceptance[1]["chat"]]
        table.add_row(
            result.variant, *(" ".join(f"{rate:.3f}" for rate in rates[:4]) for rates in columns),
            f"{result.seconds:.0f}",
        )  # fmt: skip
    return table


def main() -> None:
    """Train the requested variants that are not finished yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--tokens", type=int, default=60_000)
    parser.add_argument("--model", default=QWEN_05B.name)
    parser.add_argument("--only", action="append", choices=VARIANTS)
    arguments = parser.parse_args()
    console = Console(stderr=True)
    path = locate_model(arguments.model, console)
    model = load_model(path, device="cpu", adapter="none", turn_completion="none", request_classifier="none")
    head = bundled(path, model.decoder.config, BUNDLED_DRAFT_HEADS, load_draft_head)
    if head is None:
        parser.error("a block drafter extends a draft head, and this model has none")
    missing = [
        name for name in arguments.only or VARIANTS if name not in load_results(arguments.folder, arguments.steps)
    ]
    if missing:
        text = load_text(arguments.text, weights_checksum(path))
        text = text.part(0, int((text.ends <= arguments.tokens).sum()))
        shard = StateShard.joined(
            list(track(with_states(model, text), "reading", total=len(text.ends), console=console))
        )
        arguments.folder.mkdir(parents=True, exist_ok=True)
        for name in missing:
            result = train(name, arguments.steps, shard, model, path, head, console)
            with (arguments.folder / "results.jsonl").open("a") as file:
                file.write(json.dumps(asdict(result)) + "\n")
    Console(width=160).print(results_table(load_results(arguments.folder, arguments.steps)))


if __name__ == "__main__":
    main()
