"""Which language model suits this machine: `--model auto`, and the verdicts of `rejoinder models list`.

Installed models are tried at the first start (`trial.py`), the largest first. `choose` says which one is to be used by
what is known so far, or tried next. From then on, the turns of the server say whether that was right.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from agent.storage import data_folder
from model.hub import catalog
from model.hub.catalog import GeneralModel, ModelEntry
from model.hub.store import ModelStore
from model.hub.transfer import ModelUnavailable
from model.nn.cpu.team import available_cores
from model.nn.device import auto_device
from server.processor import cpu_name, physical_memory
from server.serving.general_models import SAME_SIZE, pulled_models
from server.serving.model_record import ENOUGH_TURNS, ModelHistory, ModelRecord
from server.serving.options import AUTO_MODEL, ModelOptions

_log = logging.getLogger("rejoinder.models")

QUICK_MS = 800
"""Median turn latency with which a model is quick enough."""

PATIENT_MS = 1200
"""The same for a model whose answers are much better than those of all that are quick."""

MUCH_LOWER, OFTEN_WRONG = 15, 75
"""Points of the rating: how much lower is much, and below which a model's answers are called often wrong."""

_FASTER = 0.75
"""If the turns of a model take so much less than its trial did, the machine is quicker than it was then, and a larger
model is tried again."""

_GPU_BYTES_PER_FILE_BYTE = 4
"""A GPU holds the weights in bfloat16, three and a half times the size of a 4-bit file, and its own working memory."""

_CPU_MEMORY_FACTOR, _CPU_MEMORY_BYTES = 1.3, 1 << 30
"""Memory of a server: its weights with what is mapped besides, and the speech models."""


@dataclass(frozen=True)
class Choice:
    """A model, and why.

    Attributes:
        known: whether what is known suffices. Otherwise the model is to be tried.
        reason: for the log.
    """

    model: ModelEntry
    known: bool
    reason: str


def choose(candidates: Sequence[ModelEntry], histories: Mapping[str, ModelHistory]) -> Choice:
    """The model to use, or to try next.

    It is the largest whose median is at most `QUICK_MS`. If that one is rated much lower than a model with at most
    `PATIENT_MS`, it is the best of those. If none is so quick, it is the quickest.

    Args:
        candidates: at least one, the largest first.
        histories: by the name of the model.
    """
    known: dict[ModelEntry, int] = {}
    for model in candidates:
        median = _median_ms(model, candidates, histories)
        if median is None:
            return Choice(model, False, "it was not tried yet" if model.name not in histories else "it is tried again")
        known[model] = median
        if median <= limit_ms(model, candidates):
            least = model.rating + (MUCH_LOWER if median <= QUICK_MS else 1)
            better = [one for one in known if known[one] <= PATIENT_MS and one.rating >= least]
            best = max(better, key=lambda one: one.rating, default=model)
            return Choice(best, True, _reason(best, known, histories))
    patient = [one for one in known if known[one] <= PATIENT_MS]
    best = max(patient, key=lambda one: one.rating) if patient else min(known, key=lambda one: known[one])
    return Choice(best, True, _reason(best, known, histories))


def limit_ms(model: ModelEntry, candidates: Sequence[ModelEntry]) -> int:
    """The median up to which a model is taken."""
    is_much_better = all(one.rating <= model.rating - MUCH_LOWER for one in _smaller(model, candidates))
    return PATIENT_MS if is_much_better else QUICK_MS


def _smaller(model: ModelEntry, candidates: Sequence[ModelEntry]) -> Sequence[ModelEntry]:
    """Those that come after it: smaller ones, or the bundled one of the same size."""
    return candidates[candidates.index(model) + 1 :]


def _median_ms(
    model: ModelEntry, candidates: Sequence[ModelEntry], histories: Mapping[str, ModelHistory]
) -> int | None:
    """A model's median latency; None if it is to be tried."""
    history, smaller = histories.get(model.name, ModelHistory()), _smaller(model, candidates)
    median = history.median_ms
    if median is None:
        return None
    disturbed = not history.turns_tell and history.trial is not None and history.trial.disturbed
    too_slow = smaller and median > limit_ms(model, candidates)
    again = disturbed or any(_is_faster_now(histories.get(one.name)) for one in smaller)
    return None if too_slow and again else median


def _is_faster_now(history: ModelHistory | None) -> bool:
    if history is None or history.trial is None or not history.turns_tell:
        return False
    return history.turn_percentile(0.5) <= _FASTER * history.trial.median_ms


def _reason(best: ModelEntry, known: Mapping[ModelEntry, int], histories: Mapping[str, ModelHistory]) -> str:
    others = "; ".join(
        f"{one.name}: {describe(histories[one.name])}" for one in known if one != best and known[one] > known[best]
    )
    return f"{describe(histories[best.name])}" + (f" ({others})" if others else "")


def describe(history: ModelHistory) -> str:
    """What is known of a model's latency, as part of a sentence."""
    if history.turns_tell:
        median, p95 = history.turn_percentile(0.5), history.turn_percentile(0.95)
        return f"median {median:,} ms and p95 {p95:,} ms in its last {ENOUGH_TURNS} turns"
    if history.trial is None:
        return "not tried yet"
    busy = f", with other processes at {history.trial.others:.0%}" if history.trial.disturbed else ""
    return f"median {history.trial.median_ms:,} ms in its trial{busy}"


def wrong_often(model: ModelEntry) -> str:
    """A sentence about a model whose answers are rated low; empty for others."""
    if model.rating >= OFTEN_WRONG or not model.is_rated:
        return ""
    return f"often wrong ({model.rating} % of questions right)"


def verdicts(store: ModelStore, data: Path | None = None) -> dict[str, str]:
    """What `rejoinder models list` says about each language model on this machine, by its name."""
    histories = open_record(data=data).histories()
    try:
        candidates = find_candidates(store=store)
        chosen = choose(candidates, histories)
    except ModelUnavailable:
        candidates, chosen = [], None
    remarks = {}
    for model in _language_models():
        remark = describe(histories.get(model.name, ModelHistory()))
        if not fits_into_memory(model):
            remark = "too large for this machine's memory"
        elif not _is_installed(model, store):
            remark = f"rejoinder models pull {model.name}"
        elif chosen is not None and chosen.model == model:
            remark = f"chosen by auto: {remark}"
        remarks[model.name] = "; ".join(filter(None, [remark, wrong_often(model)]))
    return remarks


def find_candidates(device: str = "auto", store: ModelStore | None = None) -> list[ModelEntry]:
    """The language models that may run here, the largest first: those of the installed ones that fit into the memory,
    or, if none is installed, all that fit. Raises ModelUnavailable if none fits."""
    store, fitting = store or ModelStore(), [one for one in _language_models() if fits_into_memory(one, device)]
    if not fitting:
        raise ModelUnavailable("no language model fits into this machine's memory: choose a smaller one with --model")
    return [one for one in fitting if _is_installed(one, store)] or fitting


def _is_installed(model: ModelEntry, store: ModelStore) -> bool:
    return model not in catalog.MODELS or store.availability(model) != "not installed"


def _language_models() -> list[ModelEntry]:
    """The bundled ones, and general ones that were pulled: the largest first, and of one size the general one."""
    models = [*catalog.LANGUAGE_MODELS, *pulled_models()]
    return sorted(models, key=lambda one: -one.size * (1 if one.is_rated else SAME_SIZE))


def fits_into_memory(model: ModelEntry | GeneralModel, device: str = "auto") -> bool:
    """Whether a server with this model fits into the memory of the machine or, with a GPU, of the GPU."""
    if _on_gpu(device):
        _, total = torch.cuda.mem_get_info(_gpu(device))
        return model.size * _GPU_BYTES_PER_FILE_BYTE < total
    return model.size * _CPU_MEMORY_FACTOR + _CPU_MEMORY_BYTES < physical_memory()


def open_record(device: str = "auto", data: Path | None = None) -> ModelRecord:
    """What is known of the models on this machine.

    Args:
        device: of the language model: `auto` (a GPU when there is one), `cpu`, `cuda` or `cuda:N`.
        data: the data folder; None for the default one.
    """
    if _on_gpu(device):
        machine = str(torch.cuda.get_device_name(_gpu(device)))
    else:
        machine = f"{cpu_name()}, {available_cores()} cores"
    return ModelRecord(data or data_folder(), machine)


def _on_gpu(device: str) -> bool:
    if device == "auto":
        return auto_device()[0].type == "cuda"
    return device != "cpu" and torch.cuda.is_available()


def _gpu(device: str) -> torch.device:
    return auto_device()[0] if device == "auto" else torch.device(device)


def resolve_model(model_options: ModelOptions, data: Path | None = None) -> ModelOptions:
    """The options with `auto` replaced by a model, without a trial: by what is known, or else the largest one. Logs
    which, and why. Raises ModelUnavailable: no language model fits into the memory."""
    if model_options.model != AUTO_MODEL:
        return model_options
    candidates = find_candidates(model_options.device)
    choice = choose(candidates, open_record(model_options.device, data).histories())
    warn_of_wrong_answers(choice.model.name)
    return with_model(model_options, choice)


def with_model(model_options: ModelOptions, choice: Choice) -> ModelOptions:
    """The options with a model that was chosen, which is logged."""
    _log.info("--model auto is %s: %s", choice.model.name, choice.reason)
    return model_options.model_copy(update={"model": choice.model.name})


def warn_of_wrong_answers(name: str) -> None:
    """Log it if a model of the catalog is rated low."""
    for model in catalog.LANGUAGE_MODELS:
        if model.name == name and (wrong := wrong_often(model)):
            _log.warning("the answers of %s are %s", name, wrong)
