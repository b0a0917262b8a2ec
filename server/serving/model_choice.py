"""Which language model suits this machine: `--model auto`, and the verdicts of `rejoinder models list`.

A spoken turn takes a silence that ends it, arithmetic (recognizing the last words, reading them, synthesizing the first
clause), and the tokens of the first clause. The silence is the same everywhere; the other two follow from the speed of
the machine. `auto` is the largest installed model whose turns should stay below the target.

The constants were fitted to the corpus of `rejoinder report` with the 1.5B on two cores (docs/benchmarks/turns.md).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from model.hub import catalog
from model.hub.catalog import ModelEntry
from model.hub.store import ModelStore, ModelUnavailable
from server.serving.machine_speed import MachineSpeed, machine_speed
from server.serving.options import AUTO_MODEL, ModelOptions

_log = logging.getLogger("rejoinder.models")

TARGET_P95_MS = 1000
"""Turn latency that 19 of 20 turns should stay below."""

_SILENCE_MS = 270
"""The silence before the transcription starts, and the one at the start of synthesized speech."""

_SPEECH_GIGAFLOP = 360
"""Recognition of the last words and synthesis of the first clause, 10⁹ operations."""

_PROMPT_FLOP_PER_BYTE = 69
"""Reading the last words: 25 tokens, two operations for each of the 1.4 weights in a byte of the file."""

_FIRST_CLAUSE_TOKENS = 8
"""Forward passes until the first clause is complete."""

_PASS_MS = 3
"""Of a forward pass, in addition to reading weights."""

_GPU_BYTES_PER_FILE_BYTE = 4
"""A GPU holds the weights in bfloat16, three and a half times the size of a 4-bit file, and its own working memory."""

_CPU_MEMORY_FACTOR, _CPU_MEMORY_BYTES = 1.3, 1 << 30
"""Memory of a server: its weights with what is mapped besides, and the speech models."""

Outcome = Literal["chosen", "fits", "slow", "large", "absent"]


@dataclass(frozen=True)
class Verdict:
    """Whether a model suits this machine.

    Attributes:
        p95_ms: turn latency to expect of it, ms.
        outcome: `chosen` by `auto`; `fits`, but a larger one does too; too `slow`; too `large` for the memory;
            `absent`, not installed.
    """

    model: ModelEntry
    p95_ms: int
    outcome: Outcome

    def __str__(self) -> str:
        latency = f"about {self.p95_ms:,} ms at p95"
        return {
            "chosen": f"chosen by auto: {latency}",
            "fits": latency,
            "slow": f"too slow here: {latency}",
            "large": "too large for this machine's memory",
            "absent": f'{latency}, if installed: pip install "rejoinder[{self.model.pip_extra}]"',
        }[self.outcome]


def estimate_p95_ms(model: ModelEntry, speed: MachineSpeed) -> int:
    """Turn latency at p95 to expect, ms; docs/guide/choosing-a-model.md explains the formula."""
    speech_ms = 1000 * _SPEECH_GIGAFLOP / speed.cpu_gigaflops
    prompt_ms = _PROMPT_FLOP_PER_BYTE * model.size / speed.gigaflops / 1e6
    token_ms = _PASS_MS + _weight_bytes(model, speed) / speed.gigabytes_per_second / 1e6
    p95_ms = _SILENCE_MS + speech_ms + prompt_ms + _FIRST_CLAUSE_TOKENS * token_ms
    return 10 * round(p95_ms / 10)


def _weight_bytes(model: ModelEntry, speed: MachineSpeed) -> int:
    return model.size * (_GPU_BYTES_PER_FILE_BYTE if speed.gpu else 1)


def _fits_into_memory(model: ModelEntry, speed: MachineSpeed) -> bool:
    if speed.gpu:
        return _weight_bytes(model, speed) < speed.memory_bytes
    return model.size * _CPU_MEMORY_FACTOR + _CPU_MEMORY_BYTES < speed.memory_bytes


def judge_models(speed: MachineSpeed, store: ModelStore) -> list[Verdict]:
    """A verdict on every language model of the catalog.

    One is `chosen`: the largest installed one that should stay below the target or, where none does, the smallest
    installed one. If no model is installed, all of them are considered.
    """
    verdicts = []
    for model in (entry for entry in catalog.MODELS if entry.kind == "language"):
        p95 = estimate_p95_ms(model, speed)
        outcome: Outcome = "fits" if p95 < TARGET_P95_MS else "slow"
        if not _fits_into_memory(model, speed):
            outcome = "large"
        elif store.availability(model) == "not installed":
            outcome = "absent"
        verdicts.append(Verdict(model, p95, outcome))
    candidates = [one for one in verdicts if one.outcome in ("fits", "slow")] or [
        one for one in verdicts if one.outcome == "absent"
    ]
    quick = [one for one in candidates if one.p95_ms < TARGET_P95_MS]
    if candidates:
        best = max(quick, key=_size) if quick else min(candidates, key=_size)
        verdicts[verdicts.index(best)] = replace(best, outcome="chosen")
    return verdicts


def _size(verdict: Verdict) -> int:
    return verdict.model.size


def resolve_model(
    model_options: ModelOptions,
    store: ModelStore | None = None,
    measure: Callable[[str], MachineSpeed] = machine_speed,
) -> ModelOptions:
    """The options with `auto` replaced by a model. Logs which, and why.

    Args:
        store: the installed models.
        measure: measures a device.

    Raises:
        ModelUnavailable: no language model fits into the memory.
    """
    if model_options.model != AUTO_MODEL:
        return model_options
    speed = measure(model_options.device)
    verdicts = judge_models(speed, store or ModelStore())
    chosen = next((one for one in verdicts if one.outcome == "chosen"), None)
    if chosen is None:
        raise ModelUnavailable("no language model fits into this machine's memory: choose a smaller one with --model")
    _log.info("--model auto is %s. %s", chosen.model.name, _reason(chosen, verdicts, speed))
    return model_options.model_copy(update={"model": chosen.model.name})


def _reason(chosen: Verdict, verdicts: Sequence[Verdict], speed: MachineSpeed) -> str:
    target = f"{TARGET_P95_MS:,} ms"
    expected = f"turns of about {chosen.p95_ms:,} ms at p95 ({speed.machine}: {speed.gigabytes_per_second:g} GB/s)"
    if chosen.p95_ms >= TARGET_P95_MS:
        return f"No installed model should answer within {target}; this one is the smallest, with {expected}"
    larger = [one for one in verdicts if _size(one) > _size(chosen) and one.outcome != "absent"]
    reasons = "".join(f"; {one.model.name} is {one}" for one in larger)
    return f"It is the largest installed model that should answer within {target}, with {expected}{reasons}"
