"""`rejoinder convert eval`: what an adapter is worth on conversations that it was not trained on.

Three ways to write each answer take turns: with all the drafts the adapter was trained for (which tells acceptance),
with as many as pay here (which tells speed), and one token a pass (which tells what both must say).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from model.answer import Answer
from model.chat import TextMessage
from model.convert.corpus import loops
from model.convert.prompts import PASSAGE_TURN
from model.decode import decoding
from model.decode.verified import Drafting, Verifier
from model.engine import LoadedModel
from model.sampling import Rule
from model.transformer import reading


@dataclass(frozen=True)
class Question:
    """A prompt of the evaluation.

    Attributes:
        kind: chat, list, numbers, json, tool or passage.
        said: what the user says.
        tools: function declarations.
    """

    kind: str
    said: str
    tools: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Written:
    """One answer.

    Attributes:
        tokens: with the end token.
        passes, seconds: of decoding.
        accepted: for each pass that checked drafts, how many there were and how many were accepted.
    """

    tokens: tuple[int, ...]
    passes: int
    seconds: float
    accepted: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Kind:
    """Figures of one kind of text, loops left out.

    Attributes:
        prompts, loops: answers, and how many of them say the same over and over and are left out.
        slot_acceptance: how often the first, the first two, … drafts are all accepted.
        tokens_per_forward: with all drafts.
        tokens_per_second, paced_tokens_per_forward: with as many drafts as pay here.
        autoregressive_tokens_per_second: one token a pass.
        identical: answers that are the same in all three ways, of all answers, loops too.
    """

    prompts: int
    loops: int
    slot_acceptance: tuple[float, ...]
    tokens_per_forward: float
    tokens_per_second: float
    paced_tokens_per_forward: float
    autoregressive_tokens_per_second: float
    identical: int


def questions() -> list[Question]:
    """The evaluation's own prompts; training text never holds them."""
    said = json.loads(resources.files("model.convert").joinpath("evaluation.json").read_text(encoding="utf-8"))
    return [
        Question(
            entry["kind"],
            PASSAGE_TURN.format(passage=said["passages"][entry["passage"]], question=entry["said"])
            if "passage" in entry
            else entry["said"],
            tuple(said["tools"][n] for n in entry.get("tools", ())),
        )
        for entry in said["prompts"]
    ]


def evaluate(
    model: LoadedModel,
    asked: Sequence[Question],
    instructions: str,
    paced: Callable[[], int],
    *,
    most_tokens: int = 64,
    report: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Kind]:
    """Write every answer in three ways and compare.

    Args:
        instructions: the assistant's, for spoken kinds; JSON is asked of a plain helpful assistant.
        paced: how many drafts pay here, asked before each pass.
        most_tokens: of an answer.
        report: told how many questions are done.

    Returns:
        Figures by kind, and for `all`.
    """
    slots = model.adapter.slots if model.adapter else 0
    done: list[tuple[Question, Written, Written, Written]] = []
    for question in asked:
        persona = "You are a helpful assistant." if question.kind == "json" else instructions
        messages = [TextMessage("system", persona), TextMessage("user", question.said)]
        ids = model.template.encode(messages, tools=question.tools)
        full = write(model, ids, lambda: Drafting(slots), most_tokens)
        quick = write(model, ids, lambda: Drafting(paced()), most_tokens)
        alone = write(model, ids, Drafting, most_tokens)
        done.append((question, full, quick, alone))
        report(len(done), len(asked))
    kinds = sorted({question.kind for question in asked})
    found = {kind: _figures([row[1:] for row in done if row[0].kind == kind], slots) for kind in kinds}
    return {**found, "all": _figures([row[1:] for row in done], slots)}


class _Seen:
    """Keeps what became of drafts."""

    def __init__(self) -> None:
        self.accepted: list[tuple[int, int]] = []

    def learn(self, tried: int, accepted: int) -> None:
        """A pass that checked drafts."""
        if tried:
            self.accepted.append((tried, accepted))

    def learn_copied(self, tried: int, right: int) -> None:
        """Nothing is copied here."""


def write(model: LoadedModel, ids: list[int], drafting: Callable[[], Drafting], most: int) -> Written:
    """One greedy answer behind `ids`, without an engine."""
    decoder, seen = model.decoder, _Seen()
    cache = decoder.new_cache()
    for rows in reading(cache, ids[:-1]):
        decoder.run([rows])
    answer = Answer(model.tokenizer, model.stop_tokens, most, len(ids), 0, lambda progress: None)

    context = decoder.config.context_length
    steps = decoding.write(Verifier(cache, ids, drafting, Rule(), context, seen), answer)
    passes, began = 0, time.perf_counter()
    rows = next(steps)
    while True:
        passes += 1
        try:
            rows = steps.send(decoder.run([rows], model.adapter)[0])
        except StopIteration:
            break
    seconds = time.perf_counter() - began
    tokens = [*answer.tokens, *([-1] if answer.finished == "stop" else [])]
    return Written(tuple(tokens), passes, seconds, tuple(seen.accepted))


def _figures(rows: Sequence[tuple[Written, ...]], slots: int) -> Kind:
    sound = [row for row in rows if not loops(row[2].tokens)]
    checked = [pair for full, *_ in sound for pair in full.accepted]
    slot = tuple(
        round(sum(right > n for _, right in checked) / max(1, sum(tried > n for tried, _ in checked)), 4)
        for n in range(slots)
    )

    def speed(way: int) -> float:
        return round(sum(len(row[way].tokens) for row in sound) / max(1e-9, sum(row[way].seconds for row in sound)), 1)

    def per_forward(way: int) -> float:
        return round(sum(len(row[way].tokens) for row in sound) / max(1, sum(row[way].passes for row in sound)), 3)

    same = sum(full.tokens == quick.tokens == alone.tokens for full, quick, alone in rows)
    return Kind(len(rows), len(rows) - len(sound), slot, per_forward(0), speed(1), per_forward(1), speed(2), same)
