"""The questions, the library that they are asked of, and what counts as right."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.documents.embedding import Embedder
from agent.documents.grounding import NOTHING_FOUND
from agent.documents.index import Match
from agent.documents.library import FoundPassage, Library
from chat.types import Message

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
TUNING_CORPUS = HERE / "tuning_corpus"
DISTRACTORS = HERE.parents[2] / "docs"
"""This repository's documentation: passages that no question of questions.toml is about."""


@dataclass(frozen=True)
class Question:
    """A question, and what a supported answer has.

    Attributes:
        document: the file that answers it; empty if none does.
        evidence: text of the passage that answers it.
        answer: regular expressions, all of which are found in a supported answer.
        after: the question that it takes up.
    """

    text: str
    document: str = ""
    evidence: str = ""
    answer: tuple[str, ...] = ()
    after: str = ""

    def is_evidence(self, found: FoundPassage) -> bool:
        """Whether a passage answers the question."""
        name = Path(found.path).name
        return bool(self.document) and name == self.document and self.evidence.lower() in found.passage.text.lower()

    def messages(self, instructions: str, answers: dict[str, str]) -> list[Message]:
        """The conversation up to the question. `answers` are the responses to earlier questions."""
        before = [Message("user", self.after), Message("assistant", answers[self.after])] if self.after else []
        return [Message("system", instructions), *before, Message("user", self.text)]


def read_questions(name: str) -> list[Question]:
    """The questions of a file of this folder."""
    entries = tomllib.loads((HERE / name).read_text())["question"]
    return [Question(**{**entry, "answer": tuple(entry.get("answer", ()))}) for entry in entries]


def make_library(path: Path, embedder: Embedder, folders: Sequence[Path]) -> tuple[Library, list[str]]:
    """A library of these folders, and their names."""
    library = Library(path)
    names = [library.add(folder) for folder in folders]
    for name in names:
        if errors := library.update(name, embedder, embedder.name).errors:
            raise ValueError(f"documents of the benchmark cannot be read: {errors}")
    return library, names


def rank_of_evidence(question: Question, matches: Sequence[Match]) -> int | None:
    """The position of the passage that answers, from 0."""
    return next((n for n, match in enumerate(matches) if question.is_evidence(match.found)), None)


def says_nothing_found(answer: str) -> bool:
    """Whether an answer says that the documents do not have it."""
    if NOTHING_FOUND.rstrip(".") in answer:
        return True
    refusal = r"(do(es)? not|don't|doesn't|did not|didn't|no|nothing|isn't|is not|aren't|are not|not)\b.{0,40}"
    about = (
        r"(mention|say|said|specif|state|provide|information|found|find|answer|detail|include|given|known|available)"
    )
    return re.search(rf"(?i)\b{refusal}{about}|\bnot {about}", answer) is not None


def is_supported(question: Question, answer: str) -> bool:
    """Whether an answer has what the document says, or, without a document, says that there is nothing."""
    if not question.document:
        return says_nothing_found(answer)
    return NOTHING_FOUND not in answer and all(re.search(one, answer, re.IGNORECASE) for one in question.answer)
