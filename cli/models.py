"""`rejoinder models`: lists, installs and verifies models."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.padding import Padding
from rich.text import Text

from cli.console import stderr, stdout
from cli.errors import UserError, user_errors
from cli.options import DataOption
from model.hub import catalog
from model.hub.reference import parse_reference
from model.hub.store import ModelStore
from server.serving.model_choice import verdicts
from server.serving.runtime import hub_models, progress_bars

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.command("list")
def models_list(data: DataOption = None) -> None:
    """List the models with size, licence, authors, whether they are installed, and how they have done here."""
    store = ModelStore()
    remarks = verdicts(store, data)
    rows = [
        (model.name, f"{model.size / 1e6:,.0f} MB", model.licence, store.availability(model))
        for model in catalog.MODELS
    ]
    header = ("name", "size", "licence", "status")
    name, size, licence, _ = (max(len(row[column]) for row in (header, *rows)) for column in range(len(header)))

    def line(row: tuple[str, str, str, str], style: str) -> Text:
        return Text(f"{row[0]:<{name}}  {row[1]:>{size}}  {row[2]:<{licence}}  {row[3]}", style)

    stdout.print(line(header, "dim"))
    for model, row in zip(catalog.MODELS, rows, strict=True):
        stdout.print(line(row, "bold"))
        voices = f"voices: {', '.join(model.variants)}, as in {model.names[0]}" if model.variants else None
        for detail in (f"{model.title} · {model.authors}", remarks.get(model), voices):
            if detail is not None:
                stdout.print(Padding(Text(str(detail)), (0, 0, 0, 4), expand=False))
    _list_hub_models()


def _list_hub_models() -> None:
    """Print the models that were downloaded from the hub: name, size, licence and status, then file and commit."""
    hub = hub_models()
    for model in hub.recorded():
        status = "ready" if hub.is_complete(model) else "incomplete"
        row = (model.name, f"{model.size / 1e6:,.0f} MB", model.licence, status)
        stdout.print(Text("  ".join(field for field in row if field), "bold"), soft_wrap=True)
        title = f"{model.main_file or 'safetensors'} · {model.repository} at commit {model.commit[:12]}"
        stdout.print(Padding(Text(title), (0, 0, 0, 4), expand=False))


@app.command("pull")
def models_pull(
    name: Annotated[
        str,
        typer.Argument(
            help="A name from `rejoinder models list`, or a model on the Hugging Face hub: "
            "org/repo[@revision][:file or quantization]."
        ),
    ],
) -> None:
    """Install a model into the cache and verify it. A hub model is updated to its revision's current commit."""
    with user_errors(), progress_bars(stderr) as report_progress:
        if reference := parse_reference(name):
            hub = hub_models()
            model = hub.pull(reference, report_progress)
            folder = hub.path(model)
        else:
            folder = ModelStore().pull(_find(name), report_progress)
    stdout.print(f"{name} is in {folder}", soft_wrap=True)


@app.command("verify")
def models_verify(
    name: Annotated[str | None, typer.Argument(help="Verify only this model; default: all installed ones.")] = None,
) -> None:
    """Verify the checksums of installed models."""
    store, hub = ModelStore(), hub_models()
    with user_errors():
        downloaded = [model for model in hub.recorded() if name in (None, model.name)]
        chosen = (
            ([] if downloaded else [_find(name)])
            if name
            else [m for m in catalog.MODELS if store.availability(m) == "ready" or (store.folder / m.name).exists()]
        )
    if not chosen and not downloaded:
        stdout.print("no model is installed yet: run `rejoinder models pull NAME`")
    checks: list[tuple[str, str]] = []
    for model in chosen:
        with progress_bars(stderr) as report_progress:
            checks += [(f"{model.name}/{c.file.name}", c.state) for c in store.check(model, report_progress)]
    for hub_model in downloaded:
        with progress_bars(stderr) as report_progress:
            checks += [(f"{hub_model.name}/{path}", state) for path, state in hub.check(hub_model, report_progress)]
    for path, state in checks:
        stdout.print(f"{path}: {state}", soft_wrap=True)
    if any(state != "ok" for _, state in checks):
        raise typer.Exit(1)


def _find(name: str) -> catalog.ModelEntry:
    if parse_reference(name):
        raise UserError(f"{name} has not been downloaded: run `rejoinder models pull {name}`")
    try:
        return catalog.find_model(name)[0]
    except LookupError as error:
        raise UserError(str(error)) from None
