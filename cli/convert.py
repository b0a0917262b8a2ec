"""`rejoinder convert`: a model writes its own training text, and what drafts for it is trained and evaluated."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from agent.instructions import INSTRUCTIONS
from chat.types import Handed
from cli.console import stderr, stdout, user_errors
from cli.convert_programs import programs_command
from cli.convert_tune import tune_command
from cli.options import DeviceOption, ModelOption
from cli.training import StopAfterOption, load_base, over_after, print_stopped, training_reporter
from lab.convert.corpus import load_corpus
from lab.convert.evaluate import KindMetrics, evaluate, evaluation_prompts
from lab.convert.generate_data import CorpusConfig, CorpusGenerator
from lab.convert.generate_states import StateShard
from lab.convert.own_text import load_text, save_text, with_states
from lab.convert.train_adapter import AdapterProgress, AdapterTraining, TrainingConfig
from lab.convert.train_block_drafter import BlockTraining, BlockTrainingConfig
from lab.convert.train_call_gate import GateMetrics, train_call_gate
from lab.convert.train_draft_head import HeadTraining, HeadTrainingConfig
from lab.convert.train_request_classifier import RequestMetrics, train_kind, train_request_classifier
from lab.convert.train_turn_completion import ClassifierMetrics, train_classifier
from lab.convert.write_responses import PHASES, write_responses
from model.checkpoint.checkpoint import open_checkpoint
from model.engine.bundled import (
    BUNDLED_DRAFT_HEADS,
    BUNDLED_REQUEST_CLASSIFIERS,
    bundled,
    weights_checksum,
    weights_size,
)
from model.engine.call_gate import CallGate
from model.engine.loader import LoadedModel, output_rows
from model.engine.request_classifier import RequestClassifier, load_request_classifier
from model.engine.turn_completion import TurnCompletionClassifier
from model.hub.catalog import QWEN_05B
from model.nn.draft_head import load_draft_head
from server.serving.options import ModelOptions
from server.serving.runtime import load_engine, locate_model

app = typer.Typer(no_args_is_help=True, add_completion=False)

M = TypeVar("M", ClassifierMetrics, RequestMetrics, GateMetrics)

FolderOption = Annotated[
    Path, typer.Option("--folder", help="Folder for the text, the training state and the adapter.")
]
TokensOption = Annotated[int, typer.Option("--tokens", min=1000, help="Response tokens to generate.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Random seed of the responses and of the training.")]
_FOLDER = Path("conversion")
_PARTIAL_TEXT = "text.partial"
_MODEL = QWEN_05B.name


@app.command("data")
def data(
    folder: FolderOption = _FOLDER,
    tokens: Annotated[int, typer.Option(min=100, help="Response tokens to generate.")] = 300_000,
    extra_conversations: Annotated[
        Path | None,
        typer.Option(help="Folder of your own conversations (JSONL with messages), whose user messages are added."),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed generates the same text on the same device.")] = 1,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Texts generated in parallel.")] = None,
    stop_after: StopAfterOption = None,
    model: ModelOption = _MODEL,
    device: DeviceOption = "auto",
) -> None:
    """Generate training text with the model itself. If interrupted, run the command again to resume."""
    with user_errors():
        is_over = over_after(stop_after)
        loaded, path = load_base(model, device, "bfloat16")
        batch_size = batch_size or (384 if loaded.decoder.device.type == "cuda" else 96)
        config = CorpusConfig(
            tokens, seed, batch_size, instructions=(INSTRUCTIONS,), own_conversations=extra_conversations
        )
        folder.mkdir(parents=True, exist_ok=True)
        columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed} of {task.total} tokens")
        with Progress(*columns, console=stderr) as progress:
            task = progress.add_task("starting", total=tokens)
            corpus = CorpusGenerator(
                loaded,
                weights_checksum(path),
                config,
                [prompt.text for prompt in evaluation_prompts()],
                lambda phase, done, total: progress.update(task, description=phase, completed=min(done, total)),
            ).run(folder / _PARTIAL_TEXT, is_over=is_over)
        if corpus is None:
            print_stopped(stop_after)
            return
        corpus.save(folder / "text.safetensors")
        (folder / _PARTIAL_TEXT).unlink(missing_ok=True)
    stdout.print(f"{corpus.about['texts']} texts with {corpus.about['answer_tokens']} response tokens are in {folder}")


@app.command("train")
def train_command(
    folder: FolderOption = _FOLDER,
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="Train for this long; default: 90, unless --steps is set.")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Train for this many steps instead, which is reproducible.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    rank: Annotated[int, typer.Option(min=1, max=256, help="Rank of the adapter's low-rank updates.")] = 32,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts per step.")] = 12,
    positions_per_text: Annotated[int, typer.Option(min=8, help="Draft positions per text and step.")] = 96,
    stop_after: StopAfterOption = None,
    model: ModelOption = _MODEL,
    device: DeviceOption = "auto",
) -> None:
    """Train a drafting adapter. If interrupted, run the command again to resume."""
    if minutes is not None and steps is not None:
        raise typer.BadParameter("give either --minutes or --steps")
    with user_errors():
        is_over = over_after(stop_after)
        loaded, path = load_base(model, device, "bfloat16")
        corpus = load_corpus(folder / "text.safetensors", weights_checksum(path))
        budget = None if steps else minutes or 90.0
        config = TrainingConfig(budget, steps, seed, rank, batch_size, positions_per_text)
        columns = BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn()
        with Progress(*columns, console=stderr) as progress:
            task = progress.add_task("starting", total=1.0)
            acceptance = ""

            def report(state: AdapterProgress) -> None:
                nonlocal acceptance
                if state.acceptance:
                    acceptance = " accepted " + " ".join(f"{rate:.2f}" for rate in state.acceptance)
                description = (
                    f"step {state.step} loss {state.loss:.3f} {state.tokens_per_second:.0f} tokens/s{acceptance}"
                )
                progress.update(task, description=description, completed=state.done)

            if not AdapterTraining(loaded, corpus, config, folder, weights_size(path)).run(report, is_over):
                print_stopped(stop_after)
                return
    stdout.print(f"the adapter is {folder / 'adapter.safetensors'}")


app.command("tune")(tune_command)
app.command("programs")(programs_command)


@app.command("head")
def head_command(
    folder: FolderOption = _FOLDER,
    tokens: TokensOption = 130_000,
    epochs: Annotated[float, typer.Option(min=0.1, help="How often every token is trained on.")] = 4.0,
    size: Annotated[int, typer.Option(min=32, help="Width of the head.")] = 512,
    seed: SeedOption = 1,
    model: ModelOption = _MODEL,
) -> None:
    """Train a draft head, which drafts on a CPU. If interrupted, run it again: finished responses are kept."""
    with user_errors(), Progress(console=stderr) as progress:
        loaded, path = _load_int8(model)
        base = weights_checksum(path)
        training = HeadTraining(
            _write_responses(loaded, base, folder, tokens, seed, progress),
            loaded.decoder.embedding,
            partial(output_rows, open_checkpoint(path)),
            loaded.decoder.config.vocab_size,
            HeadTrainingConfig(epochs, seed, size),
        )
        training.run(training_reporter(progress))
        trained = training.weights(base, weights_size(path))
        trained.save(folder / "draft-head.safetensors")
    accepted = " ".join(f"{rate:.2f}" for rate in trained.acceptance)
    stdout.print(f"the draft head is {folder / 'draft-head.safetensors'}; accepted {accepted}; use it with --adapter")


@app.command("drafter")
def drafter_command(
    folder: FolderOption = _FOLDER,
    text: Annotated[
        Path | None, typer.Option(help="Token ids that the model has written (`--keep-text`), in place of new ones.")
    ] = None,
    keep_text: Annotated[
        Path | None, typer.Option(help="Write the token ids of the text to this file, to train on them again.")
    ] = None,
    tokens: TokensOption = 300_000,
    steps: Annotated[int, typer.Option(min=1, help="Steps of the optimizer.")] = 1600,
    rows: Annotated[int, typer.Option(min=2, max=7, help="Tokens that are drafted together.")] = 5,
    layers: Annotated[int, typer.Option(min=1, max=4, help="Layers of the drafter.")] = 1,
    head: Annotated[
        Path | None, typer.Option(help="The draft head that it begins with; default: the folder's, or the bundled one.")
    ] = None,
    seed: SeedOption = 1,
    model: ModelOption = _MODEL,
) -> None:
    """Train a block drafter, which denoises several drafts together. If interrupted, run it again: it goes on."""
    with user_errors(), Progress(console=stderr) as progress:
        loaded, path = _load_int8(model)
        base, config = weights_checksum(path), loaded.decoder.config
        own = head or folder / "draft-head.safetensors"
        reader = (
            load_draft_head(own, config, base)
            if head is not None or own.exists()
            else bundled(path, config, BUNDLED_DRAFT_HEADS, load_draft_head)
        )
        if reader is None:
            raise ValueError("a block drafter extends a draft head: run `rejoinder convert head` first")
        folder.mkdir(parents=True, exist_ok=True)
        if text is None:
            shards = _write_responses(loaded, base, folder, tokens, seed, progress)
        else:
            written = load_text(text, base)
            read = progress.track(with_states(loaded, written), len(written.ends), description="reading responses")
            shards = list(read)
        if keep_text is not None:
            save_text(keep_text, shards, base)
        training = BlockTraining(
            [StateShard.joined(shards)],
            loaded.decoder.embedding,
            reader,
            output_rows(open_checkpoint(path), reader.vocabulary),
            BlockTrainingConfig(steps, seed, rows, layers),
            folder / "drafter.state",
        )
        training.run(training_reporter(progress))
        trained = training.weights()
        trained.save(folder / "drafter.safetensors")
    accepted = "; ".join(
        f"after {count} steps {' '.join(f'{rate:.2f}' for rate in rates)}"
        for count, rates in enumerate(trained.acceptance, 1)
    )
    stdout.print(f"the drafter is {folder / 'drafter.safetensors'}; accepted {accepted}; use it with --adapter")


def _load_int8(model: str) -> tuple[LoadedModel, Path]:
    """A base model with int8 weights, whose states a draft head reads, and its path."""
    loaded, path = load_base(model, "cpu")
    if loaded.decoder.precision != "int8":
        raise ValueError("a draft head needs int8 weights, and they need llvmlite: `pip install llvmlite`")
    return loaded, path


def _write_responses(
    loaded: LoadedModel, base: str, folder: Path, tokens: int, seed: int, progress: Progress
) -> list[StateShard]:
    """Let the model write its own text."""
    tasks = {phase: progress.add_task(phase, total=None, visible=False) for phase in PHASES}
    return write_responses(
        loaded, base, folder / "states", tokens, seed, INSTRUCTIONS, [prompt.text for prompt in evaluation_prompts()],
        lambda phase, done, total: progress.update(tasks[phase], completed=done, total=total, visible=True),
    )  # fmt: skip


@app.command("turn-completion")
def turn_completion_command(
    folder: FolderOption = _FOLDER,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    model: ModelOption = _MODEL,
    device: DeviceOption = "auto",
) -> None:
    """Train a classifier of the model's hidden state that predicts whether the user has finished; takes minutes."""
    corpus_file = folder / "text.safetensors"

    def training(loaded: LoadedModel, base: str, **rest: Any) -> tuple[TurnCompletionClassifier, ClassifierMetrics]:
        corpus = load_corpus(corpus_file, base) if corpus_file.exists() else None
        return train_classifier(loaded, corpus, base, seed=seed, **rest)

    with user_errors():
        file, metrics = _train_and_save(training, model, device, folder / "ending.safetensors")
    stdout.print(
        f"{file}: detects {metrics.recall:.0%} of complete held-out turns at a false positive rate of 5 % "
        f"(AUC {metrics.auc:.3f}); use it with `--turn-completion {file}`",
        soft_wrap=True,
    )


@app.command("request-classifier")
def request_classifier_command(
    folder: FolderOption = _FOLDER,
    kind: Annotated[
        Handed | None,
        typer.Option(help="Train the bundled classifier of the model anew for this kind alone."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    model: ModelOption = _MODEL,
    device: DeviceOption = "auto",
) -> None:
    """Train a classifier of requests which need a tool, or which the assistant must decline; takes up to an hour."""
    with user_errors():
        training = (
            partial(train_request_classifier, instructions=INSTRUCTIONS, seed=seed)
            if kind is None
            else partial(train_kind, _bundled_classifier(model), INSTRUCTIONS, kind, seed=seed)
        )
        file, metrics = _train_and_save(training, model, device, folder / "requests.safetensors")
    recall = ", ".join(f"{share:.0%} of {kind} ones" for kind, share in metrics.recall.items())
    stdout.print(
        f"{file}: of {metrics.requests} held-out requests it recognizes {recall}, and takes "
        f"{metrics.false_positive_rate:.1%} of the answerable ones for one that cannot be fulfilled and "
        f"{metrics.false_task_rate:.1%} for a task; use it with `--request-classifier {file}`",
        soft_wrap=True,
    )


def _bundled_classifier(model: str) -> RequestClassifier:
    """The request classifier that is bundled for a model. Raises ValueError: there is none."""
    path = locate_model(model, stderr)
    config = open_checkpoint(path).config
    found = bundled(path, config, BUNDLED_REQUEST_CLASSIFIERS, load_request_classifier)
    if found is None:
        raise ValueError("no request classifier is bundled for these weights: train all kinds, without --kind")
    return found


@app.command("call-gate")
def call_gate_command(
    folder: FolderOption = _FOLDER,
    examples: Annotated[
        Path | None,
        typer.Option(
            help="More examples: JSON Lines with `tools`, `messages`, and `fits` or `several`, each true or false."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    model: ModelOption = _MODEL,
    device: DeviceOption = "auto",
) -> None:
    """Train a classifier that tells which calls a response needs, of the functions on offer; takes up to an hour."""
    with user_errors():
        instructions = (INSTRUCTIONS, "You are a helpful assistant.")
        training = partial(train_call_gate, instructions=instructions, examples=examples, seed=seed)
        file, metrics = _train_and_save(training, model, device, folder / "calls.safetensors")
    shares = ", ".join(f"{question} {share:.0%}" for question, share in metrics.accuracy.items())
    stdout.print(
        f"{file}: right for held-out sets of functions, by question: {shares}; use it with `--call-gate {file}`",
        soft_wrap=True,
    )


def _train_and_save(
    training: Callable[..., tuple[TurnCompletionClassifier | RequestClassifier | CallGate, M]],
    model: str,
    device: str,
    file: Path,
) -> tuple[Path, M]:
    """Train a classifier on a model's states, and write it to a file; returns the file and the figures."""
    loaded, path = load_base(model, device)
    with Progress(console=stderr, transient=True) as progress:
        task = progress.add_task("reading", total=1.0)
        classifier, metrics = training(
            loaded,
            base=weights_checksum(path),
            on_progress=lambda phase, done: progress.update(task, description=phase, completed=done),
        )
    file.parent.mkdir(parents=True, exist_ok=True)
    about = {"base_bytes": str(weights_size(path)), "held_out": json.dumps(asdict(metrics))}
    replace(classifier, metadata={**about, **classifier.metadata}).save(file)
    return file, metrics


@app.command("eval")
def eval_command(
    folder: FolderOption = _FOLDER,
    adapter: Annotated[
        Path | None, typer.Option(help="Adapter or draft head; default: adapter.safetensors in the folder.")
    ] = None,
    bundled: Annotated[bool, typer.Option("--bundled", help="Evaluate what is bundled for these weights.")] = False,
    prompts: Annotated[
        int | None, typer.Option(min=1, help="Evaluate only this many prompts, spread over all kinds.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    model: ModelOption = _MODEL,
    device: DeviceOption = "auto",
) -> None:
    """Evaluate an adapter or a draft head on conversations that it was not trained on."""
    with user_errors():
        selected = evaluation_prompts()
        if prompts:
            selected = selected[:: max(1, len(selected) // prompts)][:prompts]
        adapter_option: Path | Literal["auto", "none"] = (
            "auto" if bundled else adapter or folder / "adapter.safetensors"
        )
        with closing(load_engine(ModelOptions(model=model, device=device, adapter=adapter_option), stderr)) as engine:
            if engine.model.adapter is None and engine.model.draft_head is None:
                raise ValueError("nothing that drafts is bundled for these weights: run `rejoinder convert head`")
            with Progress(console=stderr, transient=True) as progress:
                task = progress.add_task("generating", total=len(selected))
                results = engine.call(
                    lambda loaded: evaluate(
                        loaded, selected, INSTRUCTIONS, engine.drafting,
                        on_progress=lambda done, total: progress.update(task, completed=done),
                    )
                )  # fmt: skip
    overall = results["all"]
    if as_json:
        payload = {
            "model": model,
            "slot_acceptance": overall.slot_acceptance,
            "tokens_per_forward": overall.tokens_per_forward,
            "identical_to_autoregressive": overall.identical == overall.prompts,
            "kinds": {kind: asdict(metrics) for kind, metrics in results.items()},
        }
        stdout.print_json(json.dumps(payload))
    else:
        stdout.print(_results_table(results))


def _results_table(results: dict[str, KindMetrics]) -> Table:
    table = Table(
        "kind", "prompts", "loops", "acceptance by draft position", "tokens per forward pass",
        "with adaptive draft length", "tokens/s", "autoregressive tokens/s", "identical",
    )  # fmt: skip
    for kind, row in results.items():
        table.add_row(
            kind, str(row.prompts), str(row.loops), " ".join(f"{rate:.2f}" for rate in row.slot_acceptance),
            f"{row.tokens_per_forward:.2f}", f"{row.paced_tokens_per_forward:.2f}", f"{row.tokens_per_second:.1f}",
            f"{row.autoregressive_tokens_per_second:.1f}", f"{row.identical} of {row.prompts}",
        )  # fmt: skip
    return table
