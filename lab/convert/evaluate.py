"""`rejoinder convert eval`: measures an adapter or a draft head on conversations that it was not trained on.

Every response is generated in three ways: always with as many drafts as the adapter was trained for, or four of a draft
head (which gives the acceptance), with the adaptive number of drafts (which gives the speed), and with one token per
forward pass (which gives the text that the other two must match).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from chat.types import Message
from lab.convert.corpus import is_looping
from lab.convert.prompts import PASSAGE_TURN
from model.decode import decoding
from model.decode.draft_length import DraftLengthController
from model.decode.output import GenerationOutput
from model.decode.sampling import Sampler
from model.decode.speculative import DraftSettings, SpeculativeDecoder
from model.engine.loader import LoadedModel
from model.nn.forward_batch import prefill

_HEAD_DRAFTS = 4
"""Drafts of a draft head of which the acceptance is measured."""


@dataclass(frozen=True)
class EvaluationPrompt:
    """A prompt of the evaluation.

    Attributes:
        kind: chat, list, numbers, json, tool or passage.
        text: the user's message.
        tools: function declarations.
    """

    kind: str
    text: str
    tools: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Generation:
    """A generated response.

    Attributes:
        tokens: its tokens, including the end token.
        steps, seconds: forward passes and time of decoding.
        accepted: for each step that verified drafts, the number of drafts and how many of them were accepted.
    """

    tokens: tuple[int, ...]
    steps: int
    seconds: float
    accepted: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class KindMetrics:
    """Results for one kind of prompt. Looping responses are excluded, except where stated.

    Attributes:
        prompts: number of prompts, including those with looping responses.
        loops: number of responses that loop.
        slot_acceptance: how often the first, the first two, … drafts are all accepted.
        tokens_per_forward: with all drafts.
        tokens_per_second, paced_tokens_per_forward: with the adaptive number of drafts.
        autoregressive_tokens_per_second: with one token per forward pass.
        identical: number of responses that are the same in all three ways, including looping ones.
    """

    prompts: int
    loops: int
    slot_acceptance: tuple[float, ...]
    tokens_per_forward: float
    tokens_per_second: float
    paced_tokens_per_forward: float
    autoregressive_tokens_per_second: float
    identical: int


def evaluation_prompts() -> list[EvaluationPrompt]:
    """The prompts of the evaluation. Training text never contains them."""
    data = json.loads(resources.files("lab.convert").joinpath("evaluation.json").read_text(encoding="utf-8"))
    return [
        EvaluationPrompt(
            entry["kind"],
            PASSAGE_TURN.format(passage=data["passages"][entry["passage"]], question=entry["said"])
            if "passage" in entry
            else entry["said"],
            tuple(data["tools"][n] for n in entry.get("tools", ())),
        )
        for entry in data["prompts"]
    ]


def evaluate(
    model: LoadedModel,
    prompts: Sequence[EvaluationPrompt],
    instructions: str,
    adaptive: Callable[[], DraftSettings],
    *,
    max_tokens: int = 64,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[str, KindMetrics]:
    """Generate every response in three ways and compare.

    Args:
        instructions: the assistant's instructions; JSON prompts use those of a plain helpful assistant.
        adaptive: called before each step of the second way; returns how drafting is fastest.
        max_tokens: maximum length of a response.
        on_progress: called with the number of finished prompts and of all prompts.

    Returns:
        Metrics by kind, and those of all prompts as `all`.
    """
    always, num_drafts = all_drafts(model)
    results: list[tuple[EvaluationPrompt, tuple[Generation, ...]]] = []
    for prompt in prompts:
        system_prompt = "You are a helpful assistant." if prompt.kind == "json" else instructions
        messages = [Message("system", system_prompt), Message("user", prompt.text)]
        ids = model.template.encode(messages, tools=prompt.tools)
        ways = (lambda: always), adaptive, DraftSettings
        results.append((prompt, tuple(generate_greedily(model, ids, way, max_tokens) for way in ways)))
        on_progress(len(results), len(prompts))
    kinds = sorted({prompt.kind for prompt in prompts})
    metrics = {kind: _metrics([g for prompt, g in results if prompt.kind == kind], num_drafts) for kind in kinds}
    return {**metrics, "all": _metrics([generations for _, generations in results], num_drafts)}


def all_drafts(model: LoadedModel) -> tuple[DraftSettings, int]:
    """Always as many drafts as the adapter was trained for, or four of a draft head; and their number."""
    if model.draft_head is not None:
        return DraftSettings(worth_drafting=lambda confidence, others: len(confidence) < _HEAD_DRAFTS), _HEAD_DRAFTS
    num_drafts = model.adapter.num_drafts if model.adapter else 0
    return DraftSettings(num_drafts), num_drafts


class _AcceptanceRecorder(DraftLengthController):
    """Records how many drafts were accepted, and decides nothing."""

    def __init__(self) -> None:
        super().__init__({1: 1.0}, 0)
        self.accepted: list[tuple[int, int]] = []

    def record_drafts(self, tried: int, accepted: int) -> None:
        """A step verified drafts."""
        if tried:
            self.accepted.append((tried, accepted))


def generate_greedily(
    model: LoadedModel, ids: list[int], draft_settings: Callable[[], DraftSettings], max_tokens: int
) -> Generation:
    """Generate one greedy response to the prompt `ids`, without an engine."""
    decoder, recorder = model.decoder, _AcceptanceRecorder()
    cache = decoder.new_cache()
    for chunk in prefill(cache, ids[:-1]):
        decoder.run([chunk])
    output = GenerationOutput(model.tokenizer, model.stop_tokens, max_tokens, len(ids), 0, lambda progress: None)

    context = decoder.config.context_length
    speculative = SpeculativeDecoder(
        cache, ids, draft_settings, Sampler(), context, recorder, draft_head=model.draft_head
    )
    generation = decoding.generate(speculative, output)
    steps, started = 0, time.perf_counter()
    forward_input = next(generation)
    while True:
        steps += 1
        try:
            forward_input = generation.send(decoder.run([forward_input], model.adapter)[0])
        except StopIteration:
            break
    seconds = time.perf_counter() - started
    tokens = [*output.tokens, *([-1] if output.finished == "stop" else [])]
    return Generation(tuple(tokens), steps, seconds, tuple(recorder.accepted))


def _metrics(results: Sequence[tuple[Generation, ...]], num_drafts: int) -> KindMetrics:
    """Metrics of (all drafts, adaptive, autoregressive) generations, one tuple per prompt."""
    usable = [generations for generations in results if not is_looping(generations[2].tokens)]
    verified = [pair for all_drafts, *_ in usable for pair in all_drafts.accepted]
    slot_acceptance = tuple(
        round(sum(accepted > n for _, accepted in verified) / max(1, sum(tried > n for tried, _ in verified)), 4)
        for n in range(num_drafts)
    )

    def num_tokens(way: int) -> int:
        return sum(len(generations[way].tokens) for generations in usable)

    def per_second(way: int) -> float:
        return round(num_tokens(way) / max(1e-9, sum(generations[way].seconds for generations in usable)), 1)

    def per_forward(way: int) -> float:
        return round(num_tokens(way) / max(1, sum(generations[way].steps for generations in usable)), 3)

    return KindMetrics(
        prompts=len(results),
        loops=len(results) - len(usable),
        slot_acceptance=slot_acceptance,
        tokens_per_forward=per_forward(0),
        tokens_per_second=per_second(1),
        paced_tokens_per_forward=per_forward(1),
        autoregressive_tokens_per_second=per_second(2),
        identical=sum(first.tokens == second.tokens == third.tokens for first, second, third in results),
    )
