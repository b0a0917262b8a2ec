"""Small documents of every kind, and stand-ins for the embedding model and the search."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from concurrent.futures import Executor
from io import BytesIO
from pathlib import Path

import docx
import numpy as np
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from agent.documents.index import Match
from agent.documents.library import FoundPassage, Vectors
from agent.documents.passages import Passage
from agent.documents.readers import Document, file_bytes, parse
from tests.fakes import InlineExecutor

HOUSE = """---
title: "The House on Mill Lane"
---

# Welcome

The house has *five* rooms, and the cellar.

## Heating

### Boiler

Turn the red handle clockwise to switch the boiler on.

## Rubbish

| day | bin |
|---|---|
| Monday | paper |
| Thursday | glass |

- Put the bins out before `seven`.
"""

PAGE = """<html><head><title>Garden - Mill Lane</title><style>p {}</style></head><body>
<nav><a href="/">Home</a></nav>
<main><h1>The garden</h1><p>Water the <b>tomatoes</b> every second evening.</p>
<h2>Tools</h2><ul><li>The spade hangs in the shed.</li></ul>
<table><tr><th>plant</th><th>month</th></tr><tr><td>beans</td><td>May</td></tr></table></main>
<script>alert("x")</script></body></html>"""


DIMENSIONS = 64


def embed(texts: Sequence[str]) -> Vectors:
    """A vector for each text that depends on its words: texts with the same words are near each other."""
    vectors = []
    for text in texts:
        words = re.findall(r"[a-z]{4,}", text.lower()) or ["nothing"]
        seeds = [int.from_bytes(hashlib.sha256(word[:6].encode()).digest()[:8]) for word in words]
        vectors.append(sum(np.random.default_rng(seed).standard_normal(DIMENSIONS) for seed in seeds))
    return np.stack([vector / np.linalg.norm(vector) for vector in vectors]).astype(np.float32)


def read_document(path: Path) -> Document:
    """Read a file in this process."""
    return parse(path, file_bytes(path))


def write_pdf(path: Path, pages: Sequence[str], title: str = "", password: str = "") -> None:
    """A PDF file with a line of text on each page."""
    writer = PdfWriter()
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    for text in pages:
        page = writer.add_blank_page(595, 842)
        page[NameObject("/Resources")] = DictionaryObject(
            {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
        )
        content = DecodedStreamObject()
        content.set_data(f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = content
    if title:
        writer.add_metadata({"/Title": title})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    buffer = BytesIO()
    writer.write(buffer)
    path.write_bytes(buffer.getvalue())


def write_docx(path: Path) -> None:
    """A Word file with a title, a heading, a paragraph and a table."""
    document = docx.Document()
    document.core_properties.title = ""
    document.add_heading("Rules of the club", 0)
    document.add_heading("Membership", 1)
    document.add_paragraph("Members pay forty euros a year.")
    table = document.add_table(rows=2, cols=2)
    for cell, text in zip(
        [cell for row in table.rows for cell in row.cells], "age fee child none".split(), strict=True
    ):
        cell.text = text
    document.save(str(path))


def match(number: int, cosine: float = 0.7, words: float = 0.8, title: str = "House", text: str = "Text.") -> Match:
    return Match(FoundPassage(number, title, "house.md", Passage("Heating", 2, text)), cosine, words)


class FakeDocuments:
    """Finds `matches`, and records what was searched for."""

    def __init__(self, *matches: Match) -> None:
        self.matches, self.searched = list(matches), list[str]()
        self.failing = False
        self.mentioned: list[str] = []
        self.executor: Executor = InlineExecutor()

    def search(self, question: str) -> list[Match]:
        self.searched.append(question)
        if self.failing:
            raise RuntimeError("the index broke")
        return self.matches
