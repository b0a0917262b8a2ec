"""Reads files: plain text, Markdown, HTML, PDF and Word (DOCX). A document becomes blocks of text under headings.

The libraries for PDF, DOCX, HTML and Markdown are imported when the first such file is read: they are the extra
`documents`.
"""

from __future__ import annotations

import logging
import re
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import Any
from zipfile import ZipFile

from agent.matched_text import MAX_BLOCK

MAX_FILE_BYTES = 64 << 20
"""Larger files are refused: a book of a thousand pages has 5 MB."""

_MAX_UNPACKED_BYTES = 256 << 20
"""Of the parts of a DOCX file, which is an archive: a small one can hold any number of bytes."""

_MAX_TAGS = 200_000
"""Of an HTML file. A book has fewer; each takes about a kilobyte of memory, and nests as deep as there are tags."""

_MAX_TEXT = 20_000_000
"""Characters of a document with the headings of each block: more than the library has room for."""

_MIN_BLOCK = 100
"""Characters that a shorter block counts as, for the memory that it takes."""

_MAX_HEADING = 200
"""Characters of a heading, of a title, and of a column's name. They are repeated for what stands below them."""

_MAX_REASON = 200
"""Characters of a parser's own error, which may quote the file."""

_MAX_COLUMNS = 63
"""Word's own limit."""

_MAX_TITLE_WORDS = 10
"""A title is spoken before an answer. A longer one is no title, but a sentence."""


class UnreadableDocument(ValueError):
    """A file that cannot be read; the message says why, in words that follow "FILE: "."""


@dataclass(frozen=True)
class Block:
    """A paragraph, a list item, a table row.

    Attributes:
        headings: those that it stands under, the topmost first.
        text: on one line.
        page: of a PDF, from 1; 0 elsewhere.
    """

    headings: tuple[str, ...]
    text: str
    page: int = 0


@dataclass(frozen=True)
class Document:
    """A document as read. `title` is what it calls itself, or its file's name."""

    title: str
    blocks: tuple[Block, ...]


def parse(path: Path, data: bytes) -> Document:
    """Read what a file holds. A hostile file can make this take very long, or all the memory: `ConfinedReader` gives it
    a process of its own.

    Args:
        path: names the document and its kind.

    Raises:
        UnreadableDocument: it is damaged, protected, too large, or has no text.
    """
    try:
        title, read = READERS[path.suffix.lower()](data)
        if sum(max(len(block.text) + sum(map(len, block.headings)), _MIN_BLOCK) for block in read) > _MAX_TEXT:
            raise UnreadableDocument(f"it has more than {_MAX_TEXT / 1e6:.0f} million characters of text: split it")
        # Patterns read blocks up to a length.
        parts = ((block, part) for block in read for part in wrap(block.text, MAX_BLOCK, break_on_hyphens=False))
        blocks = tuple(replace(block, text=part) for block, part in parts if re.search(r"\w", part))
    except ImportError as error:
        raise UnreadableDocument(
            f'it needs the package {error.name}: run `pip install --only-binary=:all: -e ".[documents]"`'
        ) from None
    except UnreadableDocument:
        raise
    except (MemoryError, RecursionError):
        raise UnreadableDocument("its parts are nested too deeply, or too many: split it") from None
    except Exception as error:  # whatever a parser raises for a damaged file
        reason = str(error)[:_MAX_REASON] or type(error).__name__
        raise UnreadableDocument(f"it is damaged, or is no {path.suffix[1:].upper()} file ({reason})") from None
    if not blocks:
        raise UnreadableDocument("it has no text" + ("; is it a scan?" if path.suffix.lower() == ".pdf" else ""))
    return Document(_short(title) or _name(path), blocks)


def file_bytes(path: Path) -> bytes:
    """What a file holds.

    Raises:
        UnreadableDocument: it is too large, or no file: reading a pipe or a device might never end.
        OSError: it cannot be opened.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise UnreadableDocument("it is not a regular file")
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise UnreadableDocument(f"it has more than {MAX_FILE_BYTES / 1e6:.0f} MB: split it")
    return data


def _short(title: str) -> str:
    """A title that can be spoken; empty if this is none."""
    title = _one_line(title).strip(" .:-–—")
    is_short = len(title) <= _MAX_HEADING and len(title.split()) <= _MAX_TITLE_WORDS
    return title if is_short and re.search(r"[^\W\d_]", title) else ""


def _name(path: Path) -> str:
    """A file's name as words: "house-rules_2024.md" is "house rules 2024"."""
    return " ".join(path.stem.translate({ord(mark): " " for mark in "_-."}).split()) or path.name


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _paragraphs(text: str) -> Iterator[str]:
    """What blank lines separate, each on one line."""
    for is_blank, lines in groupby(text.split("\n"), lambda line: not line.strip()):
        if not is_blank:
            yield _one_line("\n".join(lines))


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        if b"\0" in data:
            raise UnreadableDocument("it is no text") from None
        return data.decode("cp1252", "replace")


class _Outline:
    """The blocks so far, and the headings that the next one stands under."""

    def __init__(self) -> None:
        self._open: list[tuple[int, str]] = []
        self.title, self.blocks = "", list[Block]()

    def add_heading(self, level: int, heading: str) -> None:
        """A heading of this level, 1 for the topmost. The first one on level 1 is the document's title."""
        heading = _one_line(heading)
        self._open = [entry for entry in self._open if entry[0] < level]
        if level == 1 and not self.title:
            self.title = heading
        elif heading:
            self._open.append((level, heading[:_MAX_HEADING]))

    def add(self, text: str) -> None:
        """A paragraph, a list item or a table row."""
        self.blocks.append(Block(tuple(heading for _, heading in self._open), _one_line(text)))

    def add_table(self, cells: list[list[str]]) -> None:
        """A table, row by row: every cell follows the name of its column, which the first row names."""
        header, *rows = cells or [[]]
        if not rows:
            self.add(", ".join(filter(None, header)))
        columns = [name[:_MAX_HEADING] for name in header]
        for row in rows:
            names = [*columns, *[""] * len(row)]
            named = zip(names, row, strict=False)
            self.add("; ".join(f"{name}: {cell}" if name else cell for name, cell in named if cell))


def _read_text(data: bytes) -> tuple[str, list[Block]]:
    text = _decode(data).replace("\r\n", "\n").replace("\f", "\n\n")
    return "", [Block((), paragraph) for paragraph in _paragraphs(text)]


def _read_markdown(data: bytes) -> tuple[str, list[Block]]:
    from bs4 import BeautifulSoup
    from markdown_it import MarkdownIt

    text = _decode(data).replace("\r\n", "\n")
    named = ""
    if text.startswith("---\n") and (end := text.find("\n---", 3)) >= 0:
        front, (rule, _, rest) = text[4:end].split("\n"), text[end + 1 :].partition("\n")
        if rule.rstrip() == "---":
            titles = (line.removeprefix("title:") for line in front if line.startswith("title:"))
            text, named = rest, next(titles, "").strip().strip("\"'")
    outline, heading_level = _Outline(), 0
    cells: list[list[str]] | None = None  # of the table that is open
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        match token.type:
            case "heading_open":
                heading_level = int(token.tag[1:])
            case "heading_close":
                heading_level = 0
            case "table_open":
                cells = []
            case "table_close" if cells is not None:
                outline.add_table(cells)
                cells = None
            case "tr_open" if cells is not None:
                cells.append([])
            case "inline" if heading_level:
                outline.add_heading(heading_level, _inline_text(token))
            case "inline" if cells is not None:
                cells[-1].append(_one_line(_inline_text(token)))
            case "inline" | "fence" | "code_block":
                outline.add(_inline_text(token))
            case "html_block":
                outline.add(_one_line(BeautifulSoup(token.content, "html.parser").get_text(" ")))
    return named or outline.title, outline.blocks


def _inline_text(token: Any) -> str:
    """The text of a Markdown token, without markup."""
    if not token.children:
        return str(token.content)
    return "".join(map(_inline_part, token.children))


def _inline_part(child: Any) -> str:
    if child.type == "html_inline":
        return " " if child.content.lower().startswith("<br") else ""
    return " " if child.type in ("softbreak", "hardbreak") else _inline_text(child)


_SKIPPED = ("script", "style", "noscript", "template", "nav", "footer", "aside", "form", "svg", "button", "iframe")
_HTML_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_HTML_BLOCKS = ("p", "li", "dt", "dd", "blockquote", "pre", "td", "th", "figcaption", "caption", "div", "section",
                "header", "figure", "center", "legend", "article", "main", "body", "address", "summary",
                "details")  # fmt: skip
_HTML_BREAKS = ("br", "hr")


def _read_html(data: bytes) -> tuple[str, list[Block]]:
    from bs4 import BeautifulSoup
    from bs4.element import NavigableString, Tag

    if data.count(b"<") > _MAX_TAGS:
        raise UnreadableDocument(f"it has more than {_MAX_TAGS:,} tags: split it")
    soup: Any = BeautifulSoup(data, "html.parser")
    for element in soup.find_all(_SKIPPED):
        element.decompose()
    outline = _Outline()
    title = _one_line(soup.title.get_text(" ")) if soup.title is not None else ""
    for element in soup.find_all(["head", "title"]):
        element.decompose()
    blocks = (*_HTML_HEADINGS, "table", *_HTML_BLOCKS)
    block_of, table_of = {id(soup): soup}, dict[int, Any]()  # of each element, itself included
    own_text = defaultdict[int, list[str]](list)  # of each block, without that of the blocks inside it
    for node in soup.descendants:
        block, table = block_of.get(id(node.parent)), table_of.get(id(node.parent))
        if isinstance(node, Tag):
            block_of[id(node)] = node if node.name in blocks else block
            table_of[id(node)] = table or (node if node.name == "table" else None)
            if block is not None and (node.name in blocks or node.name in _HTML_BREAKS):
                own_text[id(block)].append(" ")
        elif type(node) is NavigableString and block is not None:  # no comment, which is one of its subclasses
            own_text[id(block)].append(str(node))
    for element in [soup, *soup.find_all(blocks)]:
        table = table_of.get(id(element))
        if table is not None and table is not element:  # elements are compared by all that is in them
            continue  # its table has it
        if table is not None:
            own_rows = [row for row in element.find_all("tr") if row.find_parent("table") is element]
            rows = [row.find_all(["td", "th"], recursive=False) for row in own_rows]
            outline.add_table([[_one_line(cell.get_text(" ")) for cell in row] for row in rows])
        elif element.name in _HTML_HEADINGS:
            outline.add_heading(int(element.name[1]), element.get_text(" "))
        elif text := _one_line("".join(own_text[id(element)])):
            outline.add(text)
    return outline.title or title, outline.blocks


def _read_pdf(data: bytes) -> tuple[str, list[Block]]:
    from pypdf import PdfReader
    from pypdf.errors import DependencyError, FileNotDecryptedError

    logging.getLogger("pypdf").setLevel(logging.ERROR)  # it reports every flaw that it works around
    reader = PdfReader(BytesIO(data))
    try:
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadableDocument("it is protected with a password: save a copy without one")
        blocks = []
        for number, page in enumerate(reader.pages, 1):
            text = re.sub(r"(\w)-\n(?=[a-z])", r"\1", page.extract_text())  # words that a line break divides
            blocks += [Block((), paragraph, number) for paragraph in _paragraphs(text)]
    except (DependencyError, FileNotDecryptedError):
        raise UnreadableDocument("it is encrypted: save a copy that is not") from None
    title = reader.metadata.title if reader.metadata is not None else None
    return title or "", blocks


def _read_docx(data: bytes) -> tuple[str, list[Block]]:
    import docx
    from docx.table import Table

    with ZipFile(BytesIO(data)) as archive:  # which unpacks no more of a part than the size that is declared here
        size = sum(part.file_size for part in archive.infolist())
    if size > _MAX_UNPACKED_BYTES:
        raise UnreadableDocument(
            f"it has {size / 1e6:.0f} MB unpacked, and the limit is {_MAX_UNPACKED_BYTES / 1e6:.0f}: split it"
        )
    document: Any = docx.Document(BytesIO(data))
    outline = _Outline()
    for content in document.iter_inner_content():
        if isinstance(content, Table):
            outline.add_table(_docx_rows(content))
            continue
        style = (content.style.name or "") if content.style is not None else ""
        if style == "Title":
            outline.add_heading(1, content.text)
        elif heading := re.fullmatch(r"Heading ([1-9])", style):
            outline.add_heading(int(heading[1]) + 1, content.text)  # level 1 is the title's
        else:
            outline.add(content.text)
    return document.core_properties.title or outline.title, outline.blocks


def _docx_rows(table: Any) -> list[list[str]]:
    """The texts of a table. A cell that spans columns or rows is in each of them, but not in as many as it says, which
    may be any number: `row.cells` would make so many."""
    from docx.table import _Cell

    rows = list[list[str]]()
    for row in table.rows:
        above, texts = rows[-1] if rows else [], list[str]()
        for cell in row._tr.tc_lst:
            column = len(texts)
            goes_on = cell.vMerge == "continue" and column < len(above)
            text = above[column] if goes_on else _one_line(_Cell(cell, table).text)
            texts += [text] * min(cell.grid_span, _MAX_COLUMNS - column)
        rows.append(texts)
    return rows


READERS: dict[str, Callable[[bytes], tuple[str, list[Block]]]] = {
    ".txt": _read_text,
    ".text": _read_text,
    ".md": _read_markdown,
    ".markdown": _read_markdown,
    ".html": _read_html,
    ".htm": _read_html,
    ".xhtml": _read_html,
    ".pdf": _read_pdf,
    ".docx": _read_docx,
}
"""What reads each kind of file, by its suffix: its own title, if it has one, and its blocks."""
