"""Divides documents into passages: what is searched for, and what a prompt quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from agent.documents.readers import Block, Document

WORDS = 90
"""Length that a passage is filled up to. Three of them are about 400 tokens of a prompt, which the 1.5B reads in about
a second on two cores, while the user speaks."""

_MAX_WORDS = 120
"""A longer paragraph is divided between its sentences, and a longer sentence between its words."""

_SENTENCE_END = re.compile(r"(?<=[.!?…])[\"')\]]*\s+(?=[\"'(\[]?[A-Z0-9À-Þ])")

_MIN_SENTENCE_WORDS = 4
"""A shorter sentence says nothing alone."""

_MAX_SENTENCES = 12
"""Sentences of a passage that are searched for alone."""


@dataclass(frozen=True)
class Passage:
    """A passage of a document.

    Attributes:
        heading: what it stands under: "Heating, Thermostat"; empty at the top of a document.
        page: of a PDF, from 1; 0 elsewhere.
        text: each paragraph, list item or table row on a line of its own.
    """

    heading: str
    page: int
    text: str

    @property
    def sentences(self) -> list[str]:
        """Its sentences, list items and table rows."""
        return [sentence for line in self.text.split("\n") for sentence in _SENTENCE_END.split(line)]


def searched_texts(title: str, passage: Passage) -> list[str]:
    """What a passage of this document is found by: all of it, and each of its sentences, whose meaning the others would
    blur."""
    whole = ". ".join(filter(None, (title, passage.heading, passage.text)))
    sentences = [one for one in passage.sentences if len(one.split()) >= _MIN_SENTENCE_WORDS][:_MAX_SENTENCES]
    if len(sentences) < 2:
        return [whole]
    heading = passage.heading or title
    return [whole, *(f"{heading}: {sentence}" for sentence in sentences)]


def divide(document: Document) -> list[Passage]:
    """The passages of a document, in order. None crosses a heading; one may begin on a page and end on the next."""
    passages = []
    for headings, blocks in groupby(document.blocks, lambda block: block.headings):
        heading = ", ".join(headings)
        passages += [Passage(heading, page, text) for page, text in _filled(list(_pieces(list(blocks))))]
    return passages


@dataclass(frozen=True)
class _Piece:
    """A paragraph, or a part of one. `separator` is what stands before it."""

    page: int
    text: str
    separator: str = "\n"

    @property
    def num_words(self) -> int:
        return len(self.text.split())


def _pieces(blocks: Sequence[Block]) -> Iterator[_Piece]:
    """Paragraphs, divided where they are too long."""
    for block in blocks:
        if len(block.text.split()) <= _MAX_WORDS:
            yield _Piece(block.page, block.text)
            continue
        separator = "\n"
        for sentence in _SENTENCE_END.split(block.text):
            words = sentence.split()
            for start in range(0, len(words), _MAX_WORDS):
                yield _Piece(block.page, " ".join(words[start : start + _MAX_WORDS]), separator)
                separator = " "


def _filled(pieces: Sequence[_Piece]) -> Iterator[tuple[int, str]]:
    """Pieces, joined until a passage has its length: its page and its text. A short rest joins the one before it."""
    passages: list[list[_Piece]] = [[]]
    for piece in pieces:
        if passages[-1] and _num_words(passages[-1]) + piece.num_words > WORDS:
            passages.append([])
        passages[-1].append(piece)
    if len(passages) > 1:
        rest, before = _num_words(passages[-1]), _num_words(passages[-2])
        if rest < WORDS // 4 and rest + before <= _MAX_WORDS:
            short = passages.pop()
            passages[-1].extend(short)
    for passage in passages:
        first, *others = passage
        yield first.page, first.text + "".join(f"{piece.separator}{piece.text}" for piece in others)


def _num_words(pieces: Sequence[_Piece]) -> int:
    return sum(piece.num_words for piece in pieces)
