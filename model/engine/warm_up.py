"""Times the forward passes that a turn uses at the first start: what a row costs decides how much is drafted. Later
starts know the times; what has changed since is measured while conversations run (`record_time`)."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from torch import Tensor

from model.decode.draft import Draft, DraftHead
from model.decode.draft_length import MAX_HEAD_DRAFTS, DraftLengthController
from model.decode.verify import VerificationStep
from model.engine.loader import LoadedModel
from model.hub.computed_files import ComputedFiles
from model.nn.forward_batch import prefill_chunk, text_input
from model.nn.kv_cache import KeyValueCache

_RUNS = 3
"""Times that each shape is run; the quickest run counts."""

_TIMES = ComputedFiles("step_times", 256, 1 << 20)

_VERSION = "4"
"""Increased when kernels have become faster or slower."""

_HEAD_DRAFTS = (1, 3, 5, 7)
"""Numbers of a draft head's drafts whose forward passes are timed; the costs of others are interpolated."""


@dataclass(frozen=True)
class StepTimes:
    """What steps take.

    Attributes:
        rows, seconds: numbers of rows of a forward pass, and its seconds with each.
        head_seconds, block_seconds: as `DraftLengthController` takes them.
    """

    rows: list[int]
    seconds: list[float]
    head_seconds: float | None = None
    block_seconds: float = 0.0


def warm_up(model: LoadedModel, max_drafts: int) -> DraftLengthController:
    """Run and time the forward passes of a model, unless an earlier start has done so.

    Args:
        max_drafts: how many drafts a branch of noise rows may hold; 0 for no such drafts.
    """
    head, acceptance = model.draft_head, model.adapter.acceptance if model.adapter else ()
    by_steps: Sequence[Sequence[float]] = ()
    key = None
    if model.identity and model.decoder.kernels is not None:
        drafter = repr((max_drafts, acceptance) if head is None else (head.origin, head.block, head.acceptance))
        key = (_VERSION, model.identity, model.decoder.kernels, drafter)
    known = None if key is None else _TIMES.read(*key)
    times = _measure(model, max_drafts) if known is None else StepTimes(**json.loads(known))
    if key is not None and known is None:
        _TIMES.write(json.dumps(asdict(times)).encode(), *key)
    if head is not None:
        max_drafts, acceptance, by_steps = head.block or MAX_HEAD_DRAFTS, head.acceptance[0], head.acceptance
    seconds = dict(zip(times.rows, times.seconds, strict=True))
    return DraftLengthController(seconds, max_drafts, acceptance, times.head_seconds, times.block_seconds, by_steps)


def _measure(model: LoadedModel, max_drafts: int) -> StepTimes:
    decoder, cache = model.decoder, model.decoder.new_cache()
    prompt_tokens = min(prefill_chunk(decoder.device), decoder.config.context_length - 2 * max_drafts - 1)
    decoder.forward([0] * max(1, prompt_tokens), cache, logits="last")
    head = model.draft_head
    if head is not None:
        steps = [VerificationStep(0, Draft((0,) * drafts)) for drafts in (0, *_HEAD_DRAFTS)]
    else:
        steps = [VerificationStep(0, Draft((0,) * drafts), (), drafts) for drafts in range(max_drafts + 1)]
    seconds: dict[int, float] = {}
    for step in steps * _RUNS:
        rows = step.forward_input(cache)
        start = time.perf_counter()
        decoder.run([rows], model.adapter)[0][0, 0].item()
        elapsed, num_rows = time.perf_counter() - start, len(rows.tokens)
        seconds[num_rows] = min(seconds.get(num_rows, elapsed), elapsed)
    rows_and_seconds = list(seconds), list(seconds.values())
    if head is None:
        return StepTimes(*rows_and_seconds)
    most = head.block or max(_HEAD_DRAFTS)
    each, whole = _head_seconds(model, head, cache, most) / most, 0.0
    if head.block:
        whole = _head_seconds(model, head, cache, 1)
        each = max(0.0, most * each - whole) / (most - 1)
    return StepTimes(*rows_and_seconds, each, whole)


def _head_seconds(model: LoadedModel, head: DraftHead, cache: KeyValueCache, drafts: int) -> float:
    """Seconds in which a head makes some drafts, after a forward pass that has displaced its weights from the
    processor's caches."""
    features: list[Tensor] = []
    rows = replace(text_input(cache, [0], 1), on_features=features.append)
    seconds = []
    for _ in range(_RUNS):
        model.decoder.run([rows])
        start = time.perf_counter()
        head.draft(features[-1][0], [0], lambda confidence: len(confidence) < drafts)
        seconds.append(time.perf_counter() - start)
    return min(seconds)
