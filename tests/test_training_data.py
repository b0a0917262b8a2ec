"""No sentence that figures are taken from is one that something bundled was trained with."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lab.benchmarks as benchmarks
import lab.benchmarks.conversation as conversation
import lab.benchmarks.planner as planner
import lab.benchmarks.tool_loops as tool_loops
from lab.bench.answers import load_questions
from lab.bench.tool_cases import load_cases
from lab.convert.known_facts import read_facts
from lab.convert.programs import read_examples
from lab.convert.requests import labelled_requests
from lab.convert.train_call_gate import labelled_prompts

_FEW_WORDS = 5
"""Up to so many words are what everybody says ("What time is it?")."""


def _words(text: str) -> str:
    return " ".join(re.findall(r"[a-z0-9']+", text.lower()))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _strings(one)


def _measured() -> set[str]:
    files = [*Path(planner.__path__[0]).glob("*/*.toml"), Path(tool_loops.__path__[0]) / "requests.toml"]
    texts = [text for file in files for text in _strings(tomllib.loads(file.read_text(encoding="utf-8")))]
    for file in Path(conversation.__path__[0]).glob("*/*.jsonl"):
        for item in map(json.loads, file.read_text(encoding="utf-8").splitlines()):
            texts += [one["say"] for one in (item, *item.get("turns", ())) if "say" in one]
    emergencies = Path(benchmarks.__path__[0]) / "emergencies.json"
    texts += [one["said"] for one in json.loads(emergencies.read_text(encoding="utf-8"))]
    texts += [question.turns[-1] for question in load_questions()]
    texts += [step.messages[-1].content for case in load_cases() for step in case.decisions]
    return {words for words in map(_words, texts) if len(words.split()) > _FEW_WORDS}


def _learned(by: str) -> Iterator[str]:
    if by == "programs":
        return (said for example in read_examples() for said, _ in example)
    if by == "request classifier":
        asked = [request.messages[-1].content for request in labelled_requests(seed=1)]
        return iter([*asked, *(fact.ask for fact in read_facts())])
    return (message.content for prompt in labelled_prompts(["hello"], seed=1) for message in prompt.messages)


@pytest.mark.parametrize("by", ["programs", "request classifier", "call gate"])
def test_what_is_measured_was_not_learned(by: str) -> None:
    found = len(_measured() & set(map(_words, _learned(by))))  # the sentences are not shown: half are for figures only
    assert found == 0
