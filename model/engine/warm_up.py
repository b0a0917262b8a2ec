"""Runs the shapes that a turn uses once at the start, so that the first user does not wait for them, and times them:
what a row costs decides how much is drafted."""

from __future__ import annotations

import time
from dataclasses import replace

from torch import Tensor

from model.decode.draft import Draft, DraftHead
from model.decode.draft_length import MAX_HEAD_DRAFTS, DraftLengthController
from model.decode.verify import VerificationStep
from model.engine.loader import LoadedModel
from model.nn.forward_batch import prefill_chunk, text_input
from model.nn.kv_cache import KeyValueCache

_RUNS = 3
"""Times that each shape is run; the quickest run counts."""

_HEAD_DRAFTS = (1, 3, 5, 7)
"""Numbers of a draft head's drafts whose forward passes are timed; the costs of others are interpolated."""


def warm_up(model: LoadedModel, max_drafts: int) -> DraftLengthController:
    """Run and time the forward passes of a model.

    Args:
        max_drafts: how many drafts a branch of noise rows may hold; 0 for no such drafts.
    """
    decoder, cache = model.decoder, model.decoder.new_cache()
    prompt_tokens = min(prefill_chunk(decoder.device), decoder.config.context_length - 2 * max_drafts - 1)
    decoder.forward([0] * max(1, prompt_tokens), cache, logits="last")
    head, acceptance = model.draft_head, model.adapter.acceptance if model.adapter else ()
    if head is not None:
        steps = [VerificationStep(0, Draft((0,) * drafts)) for drafts in (0, *_HEAD_DRAFTS)]
        max_drafts, acceptance = head.block or MAX_HEAD_DRAFTS, head.acceptance[0]
    else:
        steps = [VerificationStep(0, Draft((0,) * drafts), (), drafts) for drafts in range(max_drafts + 1)]
    seconds: dict[int, float] = {}
    for step in steps * _RUNS:
        rows = step.forward_input(cache)
        start = time.perf_counter()
        decoder.run([rows], model.adapter)[0][0, 0].item()
        elapsed, num_rows = time.perf_counter() - start, len(rows.tokens)
        seconds[num_rows] = min(seconds.get(num_rows, elapsed), elapsed)
    if head is None:
        return DraftLengthController(seconds, max_drafts, acceptance)
    most = head.block or max(_HEAD_DRAFTS)
    each, whole = _head_seconds(model, head, cache, most) / most, 0.0
    if head.block:
        whole = _head_seconds(model, head, cache, 1)
        each = max(0.0, most * each - whole) / (most - 1)
    return DraftLengthController(seconds, max_drafts, acceptance, each, whole, head.acceptance)


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
