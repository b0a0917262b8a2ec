"""Which questions of fact a model answers wrongly. It answers those of `facts.jsonl.xz`, which say how a right answer
is recognized; the request classifier learns from its states in their prompts which it does not know."""

from __future__ import annotations

import json
import lzma
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chat.types import Message
from lab.convert.generate_states import ResponseGenerator
from lab.convert.requests import LabelledRequest
from lab.convert.spoken_prompts import SpokenPrompt
from model.engine.loader import LoadedModel
from model.engine.request_classifier import RequestKind

ORIGIN = "fact"
"""Begins the origin of each request."""

_FILE = Path(__file__).with_name("facts.jsonl.xz")

_MAX_TOKENS = 40


@dataclass(frozen=True)
class Fact:
    """A question.

    Attributes:
        accept: patterns, of which one is found in a right answer without accents.
    """

    ask: str
    accept: tuple[str, ...]

    def is_right(self, answer: str) -> bool:
        """Whether an answer is."""
        decomposed = unicodedata.normalize("NFKD", answer)
        plain = "".join(character for character in decomposed if not unicodedata.combining(character)).strip()
        return any(re.search(pattern, plain, re.IGNORECASE) for pattern in self.accept)


def read_facts() -> list[Fact]:
    """All questions, in the order of the file."""
    lines = lzma.decompress(_FILE.read_bytes()).decode().splitlines()
    return [Fact(one["ask"], tuple(one["accept"])) for one in map(json.loads, lines)]


def fact_requests(model: LoadedModel, instructions: str) -> list[LabelledRequest]:
    """The questions as requests: `unsure` is what the model answers wrongly."""
    requests, facts = [], read_facts()
    answers = _answers(model, instructions, facts)
    for number, fact in enumerate(facts):
        kind: RequestKind = "answerable" if fact.is_right(answers[fact.ask]) else "unsure"
        requests.append(LabelledRequest(f"{ORIGIN} {number}", (Message("user", fact.ask),), kind))
    return requests


def _answers(model: LoadedModel, instructions: str, facts: Sequence[Fact]) -> dict[str, str]:
    """What the model says to each question, its most likely token at a time."""
    system = Message("system", instructions)
    asked = [SpokenPrompt("chat", (system, Message("user", fact.ask))) for fact in facts]
    generator = ResponseGenerator(model, 1, follow_ups=0.0, sampled=0.0, max_tokens=_MAX_TOKENS)
    return {
        one.prompt.messages[-1].content: model.tokenizer.decode([t for t in one.tokens if t not in model.stop_tokens])
        for one in generator.run(asked)
    }
