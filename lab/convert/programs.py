"""Examples of programs: `programs.txt.xz` has conversations, separated by empty lines, in which each line `U: …` is
what the user says, and the lines after it are the program for it."""

from __future__ import annotations

import lzma
import random
import re
from collections.abc import Iterator
from pathlib import Path

from agent.program.prompt import program_messages
from chat.types import Message

EXAMPLES = Path(__file__).parent / "programs.txt.xz"

_UNPUNCTUATED = 0.15
"""The share of conversations in lower case and without punctuation, as some recognizers write."""

ProgramExample = tuple[tuple[str, str], ...]
"""A conversation: in each turn what the user says, and the program for it."""


def read_examples(file: Path = EXAMPLES) -> Iterator[ProgramExample]:
    """The examples of a file, compressed if its name ends in `.xz`. Raises ValueError."""
    content = file.read_bytes()
    if file.suffix == ".xz":
        try:
            content = lzma.decompress(content)
        except lzma.LZMAError as error:
            raise ValueError(f"{file.name} is not what xz writes: {error}") from error
    for block in re.split(r"\n\s*\n", content.decode().strip()):
        said, *rest = re.split(r"^U: ", block.strip(), flags=re.MULTILINE)
        if said or not rest:
            raise ValueError(f"a conversation in {file.name} does not begin with `U: `: {block[:60]}")
        turns = tuple((turn.partition("\n")[0].strip(), turn.partition("\n")[2].strip()) for turn in rest)
        if not all(program for _, program in turns):
            raise ValueError(f"a turn in {file.name} has no program: {block[:60]}")
        yield turns


def varied(example: ProgramExample, seed: int) -> ProgramExample:
    """An example as it is, or as a recognizer writes it that knows no punctuation."""
    if random.Random(f"{seed} {example[0][0]}").random() >= _UNPUNCTUATED:
        return example
    return tuple((_unpunctuated(said), program) for said, program in example)


def conversation_of(example: ProgramExample) -> list[Message]:
    """An example as a conversation: the prompt for its last program, and that program."""
    *earlier, (said, program) = example
    return [*program_messages((), earlier, said), Message("assistant", program)]


def _unpunctuated(said: str) -> str:
    return re.sub(r"[^\w\s'.:%$€£/-]|[.:](?=\s|$)", "", said).lower()
