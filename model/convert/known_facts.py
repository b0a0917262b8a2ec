"""Which questions of fact a model answers wrongly. It answers those of `facts.jsonl`, which say how a right answer is
recognized; the request classifier learns from its states in their prompts which it does not know."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from chat.types import Message
from model.convert.batch_generation import Prompt, generate
from model.convert.requests import LabelledRequest
from model.engine.loader import LoadedModel

ORIGIN = "fact"
"""Begins the origin of each request."""

_FILE = Path(__file__).with_name("facts.jsonl")

_MAX_TOKENS, _BATCH_SIZE = 40, 48


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
    lines = _FILE.read_text(encoding="utf-8").splitlines()
    return [Fact(one["ask"], tuple(one["accept"])) for one in map(json.loads, lines)]


def fact_requests(model: LoadedModel, instructions: str) -> list[LabelledRequest]:
    """The questions as requests: `unsure` is what the model answers wrongly."""
    facts = read_facts()
    system = Message("system", instructions)
    encoded = (model.template.encode([system, Message("user", fact.ask)], add_generation_prompt=True) for fact in facts)
    prompts = [Prompt(tuple(ids), _MAX_TOKENS) for ids in encoded]
    outputs = generate(model.decoder, prompts, frozenset(model.stop_tokens), batch_size=_BATCH_SIZE, seed=1)
    requests = []
    for number, (fact, output) in enumerate(zip(facts, outputs, strict=True)):
        answer = model.tokenizer.decode([token for token in output if token not in model.stop_tokens])
        kind = "answerable" if fact.is_right(answer) else "unsure"
        requests.append(LabelledRequest(f"{ORIGIN} {number}", (Message("user", fact.ask),), kind))  # type: ignore[arg-type]
    return requests
