"""Text from outside holds nobody up: every regular expression of the product is quick at the length that reaches it."""

from __future__ import annotations

import re
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agent import matched_text
from tests.pattern_attacks import attacks, overlaps
from tests.pattern_collection import Collection, Use, collect

ROOT = Path(__file__).parent.parent

MAX_S = 0.04
"""How long one pattern may take for one text, in processor time; a fast machine takes half of that."""

LENGTHS = {
    "model.checkpoint.": 20_000,
    "model.decode.": 20_000,
    "model.engine.": 20_000,
    "agent.documents.": matched_text.MAX_BLOCK,
    "server.observability.": matched_text.MAX_LOG_MESSAGE,
    "agent.tools.web_search:": matched_text.MAX_BLOCK,
    "agent.tools.tool_selection:": matched_text.MAX_DESCRIPTION,
    "agent.program.": 2000,
    "agent.words.english.numbers": matched_text.MAX_COUNTED,
}
"""Characters that reach the patterns of a module or of a line; `MAX_SAID` for all others. Programs have at most 2000.
Prompts and responses, which the model's patterns read, have no limit but the context: its patterns take linear time, as
those of spoken numbers do over a whole conversation."""

_OTHER_TEXT = (
    "voice/clauses.py", "agent/documents/passages.py", "agent/documents/readers", "agent/program/units.py",
    "agent/program/evaluator.py", "agent/tools/function_tool.py", "agent/tools/mcp_servers.py",
    "agent/brevity.py", "agent/words/english/reading.py", "voice/lexicon.py", "voice/spoken_text.py",
)  # fmt: skip
"""Their patterns read responses, documents, programs and docstrings."""

_SHORT = (24, 32, 40, 60, 150)
"""Lengths that are tried first: there a pattern that takes exponential time ends a test soon."""


@cache
def collection() -> Collection:
    return collect()


def test_every_pattern_can_be_read_before_it_is_used() -> None:
    assert not collection().unreadable, "\n".join(collection().unreadable)
    assert len(collection().uses) > 250
    modules = {use.module for use in collection().uses}
    words = {"dates", "numbers", "times"}
    assert {"agent.closed_forms", *(f"agent.words.english.{name}" for name in words)} <= modules
    assert {f"agent.program.{name}" for name in ("check", "evaluator", "places", "units")} <= modules


def test_few_patterns_read_what_users_say() -> None:
    """docs/design/planner.md says what each of them may decide."""
    files = [file for package in ("agent", "voice") for file in (ROOT / package).rglob("*.py")]
    counts = {str(file.relative_to(ROOT)): file.read_text().count("re.compile(") for file in files}
    elsewhere = sum(count for file, count in counts.items() if file.startswith(_OTHER_TEXT))
    assert sum(counts.values()) - elsewhere <= 80


def test_repetitions_of_a_pattern_do_not_overlap() -> None:
    assert [f"{use.where}: {use.pattern.pattern}" for use in collection().uses if overlaps(use.pattern)] == []


@pytest.mark.slow
def test_a_pattern_is_quick_whatever_it_reads() -> None:
    slow = [sentence for use in collection().uses if (sentence := _slow(use))]
    assert not slow, "\n".join(slow)


def _slow(use: Use) -> str:
    """For what a pattern takes too long; empty if for nothing."""
    longest = next((length for place, length in LENGTHS.items() if use.where.startswith(place)), matched_text.MAX_SAID)
    for length in (*_SHORT, longest):
        for text in attacks(use.pattern, length):
            for operation in use.operations:
                seconds = _seconds(use.pattern, operation, text)
                if seconds > MAX_S:  # another process may have been in the way
                    seconds = min(seconds, *(_seconds(use.pattern, operation, text) for _ in range(2)))
                if seconds > MAX_S:
                    return f"{use.where}: {operation} takes {1000 * seconds:.0f} ms for {length} of {text[:60]!r}"
    return ""


def _seconds(pattern: re.Pattern[Any], operation: str, text: Any) -> float:
    start = time.thread_time()
    if operation in ("sub", "subn"):
        getattr(pattern, operation)(text[:0], text)
    elif operation == "finditer":
        for _ in pattern.finditer(text):
            pass
    else:
        getattr(pattern, operation)(text)
    return time.thread_time() - start


@pytest.mark.parametrize(
    "pattern", [r"(a+)+", r"\s*,?\s*x", r"(?:\w+ ?)+", r"\d[\d.,]*.*x", r"(?:a|\w+)*", r"(?i)[a-z ]+?[A-Z]*b"]
)
def test_overlapping_repetitions_are_found(pattern: str) -> None:
    assert overlaps(re.compile(pattern))


@pytest.mark.parametrize(
    "pattern", [r"(?:\.[\w-]+)+", r"\s*\d+\s*", r"\w*+.*x", r"(?>\s*),?\s*x", r".*a.*b", r"\d{1,3}\d*"]
)
def test_repetitions_that_something_separates_are_not(pattern: str) -> None:
    assert not overlaps(re.compile(pattern))


@pytest.mark.parametrize(
    "pattern", [r"^(a+)+$", r"(?i)\s*([,;]?\s*\band then\b,?|,\s*and\b|,)\s*", r"(x+x+)+y", r"if (.+ )*then"]
)
def test_the_attacks_find_slow_patterns(pattern: str) -> None:
    compiled = re.compile(pattern)
    assert any(_seconds(compiled, "search", text) > MAX_S for text in _until_slow(compiled))


def _until_slow(pattern: re.Pattern[str]) -> Any:
    for length in (*range(20, 64, 8), 250, 400):
        yield from attacks(pattern, length)
