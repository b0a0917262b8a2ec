"""Which questions of fact a model answers wrongly. It answers those of `facts.jsonl`, which say how a right answer is
recognized; the request classifier learns from its states in their prompts which it does not know."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chat.types import Message
from model.convert.requests import LabelledRequest
from model.engine.loader import LoadedModel
from model.engine.request_classifier import RequestKind
from model.nn.forward_batch import prefill, text_input

ORIGIN = "fact"
"""Begins the origin of each request."""

_FILE = Path(__file__).with_name("facts.jsonl")

_MAX_TOKENS, _BATCH_SIZE = 40, 8


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
    prompts = [model.template.encode([system, Message("user", fact.ask)], add_generation_prompt=True) for fact in facts]
    requests = []
    for number, (fact, answer) in enumerate(zip(facts, _answers(model, prompts), strict=True)):
        kind: RequestKind = "answerable" if fact.is_right(answer) else "unsure"
        requests.append(LabelledRequest(f"{ORIGIN} {number}", (Message("user", fact.ask),), kind))
    return requests


def _answers(model: LoadedModel, prompts: Sequence[Sequence[int]]) -> Iterator[str]:
    """What the model says to each prompt, its most likely token at a time. What all prompts begin with is read once."""
    decoder = model.decoder
    shared = next(n for n, column in enumerate(zip(*prompts, strict=False)) if len(set(column)) > 1)
    start = decoder.new_cache()
    for chunk in prefill(start, prompts[0][:shared]):
        decoder.run([chunk])
    caches = [start.fork() for _ in range(_BATCH_SIZE)]
    for first in range(0, len(prompts), _BATCH_SIZE):
        written: list[list[int]] = [[] for _ in prompts[first : first + _BATCH_SIZE]]
        running = {n: list(ids[shared:]) for n, ids in enumerate(prompts[first : first + _BATCH_SIZE])}
        for cache in caches:
            cache.truncate(shared)
        while running:
            logits = decoder.run([text_input(caches[n], new, 1) for n, new in running.items()])
            for (n, new), row in zip(list(running.items()), logits, strict=True):
                caches[n].commit(new)
                token = int(row[-1].argmax())
                if token in model.stop_tokens or len(written[n]) == _MAX_TOKENS:
                    del running[n]
                else:
                    written[n].append(token)
                    running[n] = [token]
        yield from map(model.tokenizer.decode, written)
