"""Examples of programs: `programs.txt` has conversations, separated by empty lines, in which each line `U: …` is what
the user says, and the lines after it are the program for it."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path(__file__).parent / "programs.txt"

_WITHOUT = 0.15
"""The share of examples in which some functions are missing; if they are needed, the program says so."""

_MISSING = {"get_weather": "tell the weather", "search_web": "search the web"}
"""Functions that are often not configured, and what cannot be done then."""

_UNPUNCTUATED = 0.15
"""The share of conversations in lower case and without punctuation, as some recognizers write."""


@dataclass(frozen=True)
class ProgramExample:
    """A conversation.

    Attributes:
        turns: what the user says, and the program for it.
        without: functions that are not there.
    """

    turns: tuple[tuple[str, str], ...]
    without: frozenset[str] = frozenset()


def read_examples(file: Path = EXAMPLES) -> Iterator[ProgramExample]:
    """The examples of a file. Raises ValueError."""
    for block in re.split(r"\n\s*\n", file.read_text(encoding="utf-8").strip()):
        said, *rest = re.split(r"^U: ", block.strip(), flags=re.MULTILINE)
        if said or not rest:
            raise ValueError(f"a conversation in {file.name} does not begin with `U: `: {block[:60]}")
        turns = tuple((turn.partition("\n")[0].strip(), turn.partition("\n")[2].strip()) for turn in rest)
        if not all(program for _, program in turns):
            raise ValueError(f"a turn in {file.name} has no program: {block[:60]}")
        yield ProgramExample(turns)


def varied(example: ProgramExample, seed: int) -> ProgramExample:
    """An example as it is, or as a recognizer writes it that knows no punctuation, or without some of the functions."""
    draw, turns, without = random.Random(f"{seed} {example.turns[0][0]}"), example.turns, frozenset[str]()
    if draw.random() < _UNPUNCTUATED:
        turns = tuple((re.sub(r"[^\w\s'.:%$€£/-]|[.:](?=\s|$)", "", said).lower(), program) for said, program in turns)
    if draw.random() < _WITHOUT:
        without = frozenset(draw.choice([["get_weather"], ["search_web"], ["get_weather", "search_web"]]))
        turns = tuple((said, _without(program, without)) for said, program in turns)
    return ProgramExample(turns, without)


def _without(program: str, names: frozenset[str]) -> str:
    """What a program becomes if these functions are not there."""
    kept = [line for line in program.splitlines() if line.partition("(")[0] not in names]
    missing = [line.partition("(")[0] for line in program.splitlines() if line.partition("(")[0] in names]
    return "\n".join([*kept, *(f'cannot("{_MISSING[name]}")' for name in dict.fromkeys(missing))])
