"""`rejoinder convert tune`: trains a model on your own conversations, and measures what that gains and loses."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress
from rich.table import Table

from agent.instructions import INSTRUCTIONS
from cli.console import stderr, stdout, user_errors
from cli.options import DeviceOption, ModelOption
from cli.training import StopAfterOption, load_base, over_after, print_stopped, training_reporter
from lab.convert.conversations import Conversation, encode_conversations, read_conversations, split_held_out
from lab.convert.tune import Tuning, TuningConfig
from lab.convert.tuning_evaluation import HeldOutMetrics, measure_held_out
from lab.convert.write_tuned import write_tuned
from model.checkpoint.checkpoint import open_checkpoint
from model.checkpoint.tuned import tuned_from
from model.engine.bundled import weights_checksum
from model.engine.loader import load_model
from model.hub.catalog import QWEN_05B

_FEWEST = 10
"""Conversations below which no tenth can be held out."""

_LESS_ACCEPTED, _LESS_AUC, _DECLINED = 0.1, 0.02, 0.1
"""Losses from which training again is advised: drafts accepted, the turn-completion classifier's AUC, and the share of
questions that the request classifier declines."""


def tune_command(
    conversations: Annotated[Path, typer.Argument(help="Your conversations: JSONL with messages.")],
    folder: Annotated[Path, typer.Option("--folder", help="Folder for the training state and the model.")] = Path(
        "tuning"
    ),
    epochs: Annotated[float, typer.Option(min=0.01, help="How often every conversation is trained on.")] = 3.0,
    rank: Annotated[int, typer.Option(min=1, max=256, help="Rank of the low-rank updates.")] = 16,
    batch_size: Annotated[int, typer.Option(min=1, help="Conversations per step.")] = 8,
    rate: Annotated[float, typer.Option(min=1e-6, help="Peak learning rate.")] = 5e-4,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    stop_after: StopAfterOption = None,
    model: ModelOption = QWEN_05B.name,
    device: DeviceOption = "auto",
) -> None:
    """Train a model on your own conversations. If interrupted, run the command again to resume."""
    with user_errors():
        is_over = over_after(stop_after)
        read = read_conversations(conversations, answered=True)
        if len(read) < _FEWEST:
            raise ValueError(f"{conversations} has {len(read)} conversations, and at least {_FEWEST} are needed")
        training, held_out = split_held_out(read)
        loaded, path = load_base(model, device, "bfloat16")
        base = weights_checksum(path)
        texts = encode_conversations(training, INSTRUCTIONS, loaded)
        folder.mkdir(parents=True, exist_ok=True)
        tuning = Tuning(
            loaded.decoder,
            texts,
            base,
            _digest(read),
            TuningConfig(epochs, seed, batch_size, rate, rank),
            folder / "tuning.state",
        )
        with Progress(console=stderr) as progress:
            if not tuning.run(training_reporter(progress), is_over):
                print_stopped(stop_after)
                return
        tuned = write_tuned(open_checkpoint(path), tuning.updates(), tuned_from(path) or base, folder)
        del loaded, tuning
        results = {}
        for name, file in (("before", path), ("after", tuned)):
            stderr.print(f"measuring the {len(held_out)} held-out conversations, {name}", highlight=False)
            results[name] = measure_held_out(load_model(file, device=device), held_out, INSTRUCTIONS)
    stdout.print(_table(results, len(training), len(held_out)))
    for line in advice(results["before"], results["after"], tuned):
        stdout.print(line, soft_wrap=True, highlight=False)
    stdout.print(f"the model is {tuned}; use it with `--model {tuned}`", soft_wrap=True, highlight=False)


def _digest(conversations: Sequence[Conversation]) -> str:
    digests = "".join(one.digest for one in conversations)
    return hashlib.sha256((INSTRUCTIONS + digests).encode()).hexdigest()


def _table(results: dict[str, HeldOutMetrics], trained: int, held_out: int) -> Table:
    table = Table(f"trained on {trained} conversations, {held_out} held out", *results)

    def row(name: str, *values: float | None, form: str = ".2f") -> None:
        table.add_row(name, *("–" if value is None else f"{value:{form}}" for value in values))

    metrics = results.values()
    row("loss of the assistant's tokens", *(one.loss for one in metrics), form=".3f")
    row("perplexity", *(one.perplexity for one in metrics))
    row("tokens predicted right", *(one.accuracy for one in metrics), form=".0%")
    row("first drafts accepted", *(one.first_draft for one in metrics), form=".0%")
    row("tokens per forward pass", *(one.tokens_per_forward for one in metrics))
    row("turn completion, AUC", *(one.turn_completion for one in metrics), form=".3f")
    row("questions that the request classifier declines", *(one.declined for one in metrics), form=".0%")
    return table


def advice(before: HeldOutMetrics, after: HeldOutMetrics, tuned: Path) -> list[str]:
    """What to train again, or to leave out."""
    lines = []
    if before.first_draft and after.first_draft is not None and after.first_draft < before.first_draft - _LESS_ACCEPTED:
        lines.append(
            f"fewer drafts are accepted: `rejoinder convert drafter --model {tuned} --folder {tuned.parent}` trains "
            "what drafts again"
        )
    completion = before.turn_completion, after.turn_completion
    if completion[0] and completion[1] is not None and completion[1] < completion[0] - _LESS_AUC:
        lines.append(
            f"turns are recognized less well: `rejoinder convert turn-completion --model {tuned}` trains it again"
        )
    if after.declined is not None and after.declined >= _DECLINED:
        lines.append(
            f"the request classifier would decline {after.declined:.0%} of the questions that the model now answers: "
            "serve it with `--request-classifier none`"
        )
    return lines
