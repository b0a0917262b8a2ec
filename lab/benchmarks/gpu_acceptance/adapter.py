"""What drafts for real weights: how often its drafts are accepted on the device, against what its file says."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.benchmarks.gpu_acceptance.answers import SYSTEM, holds
from lab.benchmarks.gpu_acceptance.context import Context, NotPossibleHere
from lab.benchmarks.gpu_acceptance.conversion import TINY_TRAINING, generated_corpus
from lab.benchmarks.gpu_acceptance.weights import models, precision
from lab.convert.evaluate import EvaluationPrompt, KindMetrics, all_drafts, evaluate, evaluation_prompts
from lab.convert.train_adapter import AdapterTraining
from model.engine.bundled import weights_checksum
from model.engine.loader import LoadedModel, load_model

_LEAST_SHARE = 0.75
"""Of the acceptance that a file promises: prompts here are few, and others than those it was measured with."""

_PROMPTS, _TOKENS = 4, 32
"""Prompts of each kind."""


def run(context: Context) -> None:
    """Run the stage."""
    for path in models(context):
        context.check(f"{path.stem}: drafts are accepted", lambda p=path: acceptance(context, p))


def acceptance(context: Context, path: Path) -> Mapping[str, Any]:
    """Answers with all drafts, with as many as are chosen, and with none."""
    with tempfile.TemporaryDirectory() as folder:
        given = context.call.adapter
        if given is None and not context.on_gpu:
            given = trained(context, path, Path(folder))
        adapter = "auto" if given is None else given
        model = load_model(path, device=str(context.device), precision=precision(context), adapter=adapter)
    if model.adapter is None and model.draft_head is None:
        raise NotPossibleHere("nothing drafts for these weights on this device")
    found = measured(model, context.on_gpu)["all"]
    promised = model.adapter.acceptance if model.adapter is not None else ()
    first = found.slot_acceptance[0] if found.slot_acceptance else 0.0
    least = _LEAST_SHARE * promised[0] if promised and given is None else 0.0
    holds(first >= least, lambda: f"{first:.2f} of first drafts are accepted, {promised[0]:.2f} are promised")
    equal = context.on_gpu or found.identical == found.prompts  # in bfloat16 only a figure: two tokens may be tied
    holds(equal, lambda: f"{found.identical} of {found.prompts} texts are those without drafts")
    holds(found.prompts > found.loops, lambda: "every answer repeats itself")
    return {
        "accepted": [round(rate, 2) for rate in found.slot_acceptance],
        "promised": [round(rate, 2) for rate in promised],
        "tokens a pass": found.tokens_per_forward,
        "identical": f"{found.identical} of {found.prompts}",
    }


def measured(model: LoadedModel, on_gpu: bool) -> Mapping[str, KindMetrics]:
    """The metrics of a few prompts of each kind."""
    always, _ = all_drafts(model)
    prompts: list[EvaluationPrompt] = []
    for kind in dict.fromkeys(prompt.kind for prompt in evaluation_prompts()):
        prompts += [prompt for prompt in evaluation_prompts() if prompt.kind == kind][: _PROMPTS if on_gpu else 1]
    prompts = prompts if on_gpu else prompts[:2]
    return evaluate(model, prompts, SYSTEM.content, lambda: always, max_tokens=_TOKENS if on_gpu else 12)


def trained(context: Context, path: Path, folder: Path) -> Path:
    """An adapter of a tiny model, trained and saved."""
    model = load_model(path, device=str(context.device), precision="float32", adapter="none")
    corpus = generated_corpus(model, 48, 6, 24, base=weights_checksum(path))
    AdapterTraining(model, corpus, TINY_TRAINING, folder).run(lambda progress: None, probe_every=None)
    return folder / "adapter.safetensors"
