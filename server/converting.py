"""`rejoinder convert`: lets a model write its own training text, teaches it to draft, and shows what that is worth."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from model.convert.corpus import load_corpus
from model.convert.data import Recipe, write_corpus
from model.convert.endings import teach
from model.convert.evaluate import Kind, evaluate, questions
from model.convert.train import Moment, Plan, train
from model.engine import LoadedModel, load_model
from model.shipped import weights_checksum, weights_size
from server.loading import DEFAULT_MODEL, Choice, load_engine, locate
from server.options import DeviceOption, ModelOption
from server.sentences import sentences
from voice.persona import INSTRUCTIONS

convert_app = typer.Typer(help="Teach a model to draft several tokens at once.", no_args_is_help=True)

_out = Console()
_err = Console(stderr=True)

FolderOption = Annotated[Path, typer.Option("--folder", help="Where the text, the training and the adapter are kept.")]
_FOLDER = Path("conversion")


@convert_app.command("data")
def data(
    folder: FolderOption = _FOLDER,
    tokens: Annotated[int, typer.Option(min=100, help="Answer tokens to write.")] = 300_000,
    own: Annotated[
        Path | None,
        typer.Option(help="A folder of your own conversations (JSONL with messages): their side is mixed in."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed writes the same text on the same device.")] = 1,
    lanes: Annotated[int | None, typer.Option(min=1, help="Texts written side by side.")] = None,
    model: ModelOption = DEFAULT_MODEL,
    device: DeviceOption = "auto",
) -> None:
    """Let the model write the text that it will learn from."""
    with sentences():
        loaded, path = _load(model, device)
        side_by_side = lanes or (384 if loaded.decoder.device.type == "cuda" else 96)
        recipe = Recipe(tokens, seed, side_by_side, instructions=(INSTRUCTIONS,), own=own)
        folder.mkdir(parents=True, exist_ok=True)
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed} of {task.total} tokens")
        with Progress(*columns, console=_err) as bars:
            task = bars.add_task("beginning", total=tokens)
            corpus = write_corpus(
                loaded,
                weights_checksum(path),
                recipe,
                forbidden=[question.said for question in questions()],
                report=lambda what, done, of: bars.update(task, description=what, completed=min(done, of)),
            )
        corpus.save(folder / "text.safetensors")
    _out.print(f"{corpus.about['texts']} texts with {corpus.about['answer_tokens']} answer tokens are in {folder}")


@convert_app.command("train")
def train_command(
    folder: FolderOption = _FOLDER,
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Stop after so long; 90 unless --steps.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Stop after so many steps instead: repeatable.")] = None,
    seed: Annotated[int, typer.Option(help="Of the beginning and of all draws.")] = 1,
    rank: Annotated[int, typer.Option(min=1, max=256, help="Of the low-rank changes.")] = 32,
    texts: Annotated[int, typer.Option(min=1, help="Texts of a step.")] = 12,
    rows: Annotated[int, typer.Option(min=8, help="Noise rows of each text in a step.")] = 96,
    model: ModelOption = DEFAULT_MODEL,
    device: DeviceOption = "auto",
) -> None:
    """Teach the model to draft; stopped and started again, it goes on where it was."""
    if minutes is not None and steps is not None:
        raise typer.BadParameter("give --minutes or --steps, one of the two")
    with sentences():
        loaded, path = _load(model, device)
        corpus = load_corpus(folder / "text.safetensors", weights_checksum(path))
        budget = None if steps else minutes or 90.0
        plan = Plan(budget, steps, seed, rank, texts, rows)
        columns = BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn()
        with Progress(*columns, console=_err) as bars:
            task = bars.add_task("beginning", total=1.0)
            said = ""

            def report(moment: Moment) -> None:
                nonlocal said
                if moment.acceptance:
                    said = " accepted " + " ".join(f"{part:.2f}" for part in moment.acceptance)
                words = f"step {moment.step} loss {moment.loss:.3f} {moment.tokens_per_second:.0f} tokens/s{said}"
                bars.update(task, description=words, completed=moment.done)

            train(loaded, corpus, plan, folder, base_bytes=weights_size(path), report=report)
    _out.print(f"the adapter is {folder / 'adapter.safetensors'}")


@convert_app.command("ending")
def ending_command(
    folder: FolderOption = _FOLDER,
    seed: Annotated[int, typer.Option(help="Of all draws.")] = 1,
    model: ModelOption = DEFAULT_MODEL,
    device: DeviceOption = "auto",
) -> None:
    """Teach a classifier that tells from the model's own state whether a user has finished; some minutes."""
    with sentences():
        path = locate(model, _err)
        loaded = load_model(path, device=device, adapter="none", ending="none")  # as it will run
        written = folder / "text.safetensors"
        corpus = load_corpus(written, weights_checksum(path)) if written.exists() else None
        with Progress(console=_err, transient=True) as bars:
            task = bars.add_task("reading", total=1.0)
            ending, found = teach(
                loaded,
                corpus,
                weights_checksum(path),
                weights_size(path),
                seed=seed,
                report=lambda what, done: bars.update(task, description=what, completed=done),
            )
        folder.mkdir(parents=True, exist_ok=True)
        ending.save(folder / "ending.safetensors")
    _out.print(
        f"{folder / 'ending.safetensors'}: of held-out turns {found.recall:.0%} are found complete where 5 % of cut "
        f"ones are called so (AUC {found.auc:.3f}); use it with `--ending {folder / 'ending.safetensors'}`",
        soft_wrap=True,
    )


@convert_app.command("eval")
def eval_command(
    folder: FolderOption = _FOLDER,
    adapter: Annotated[Path | None, typer.Option(help="An adapter; the folder's when not given.")] = None,
    shipped: Annotated[bool, typer.Option("--shipped", help="The adapter that is shipped for these weights.")] = False,
    prompts: Annotated[int | None, typer.Option(min=1, help="Only so many prompts, spread over the kinds.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    model: ModelOption = DEFAULT_MODEL,
    device: DeviceOption = "auto",
) -> None:
    """Measure an adapter on conversations that it was not trained on."""
    with sentences():
        asked = questions()
        asked = asked[:: max(1, len(asked) // prompts)][:prompts] if prompts else asked
        which: Path | Literal["auto", "none"] = "auto" if shipped else adapter or folder / "adapter.safetensors"
        engine = load_engine(Choice(model, device=device, adapter=which), _err)
        try:
            if engine.model.adapter is None:
                raise ValueError("no adapter is shipped for these weights: run `rejoinder convert train`")
            with Progress(console=_err, transient=True) as bars:
                task = bars.add_task("answering", total=len(asked))

                def report(done: int, of: int) -> None:
                    bars.update(task, completed=done)

                paced = engine.pace.slots
                found = engine.call(lambda loaded: evaluate(loaded, asked, INSTRUCTIONS, paced, report=report))
        finally:
            engine.close()
    whole = found["all"]
    if as_json:
        said = {
            "model": model,
            "slot_acceptance": whole.slot_acceptance,
            "tokens_per_forward": whole.tokens_per_forward,
            "identical_to_autoregressive": whole.identical == whole.prompts,
            "kinds": {kind: asdict(figures) for kind, figures in found.items()},
        }
        _out.print_json(json.dumps(said))
    else:
        _out.print(_table(found))


def _table(found: dict[str, Kind]) -> Table:
    table = Table(
        "kind", "prompts", "loops", "accepted, slot by slot", "tokens per forward", "with what pays here",
        "tokens/s", "one a pass", "identical",
    )  # fmt: skip
    for kind, row in found.items():
        table.add_row(
            kind, str(row.prompts), str(row.loops), " ".join(f"{part:.2f}" for part in row.slot_acceptance),
            f"{row.tokens_per_forward:.2f}", f"{row.paced_tokens_per_forward:.2f}", f"{row.tokens_per_second:.1f}",
            f"{row.autoregressive_tokens_per_second:.1f}", f"{row.identical} of {row.prompts}",
        )  # fmt: skip
    return table


def _load(model: str, device: str) -> tuple[LoadedModel, Path]:
    """A base model with float weights, and where it is."""
    path = locate(model, _err)
    return load_model(path, device=device, precision="bfloat16", adapter="none"), path
