"""What a hostile document costs: itself, and no other file."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

from agent.documents import confined_reader
from agent.documents.confined_reader import ConfinedReader
from agent.documents.library import Library
from agent.documents.readers import UnreadableDocument
from tests.agent.documents.sample_documents import HOUSE, PAGE, embed, read_document, write_docx, write_pdf

ENDLESS_HTML = "<h2>word " * 30_000
"""Headings inside headings: the text of each has that of all below it."""


def errors_of(folder: Path) -> dict[str, str]:
    """Which files a library could not read; the others are in it."""
    library = Library(folder.parent / "library.sqlite")
    name = library.add(folder)
    library.update(name, embed, "model")
    found = library.find(name)
    library.close()
    assert found.files == len(list(folder.iterdir())) - len(found.errors)
    return dict(found.errors)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with two small documents: one is read before the others, one after them."""
    folder = tmp_path / "documents"
    folder.mkdir()
    (folder / "a.html").write_text(PAGE)
    (folder / "z.md").write_text(HOUSE)
    return folder


def test_documents_of_every_kind_are_what_is_parsed_here(tmp_path: Path) -> None:
    (tmp_path / "house.md").write_text(HOUSE)
    (tmp_path / "garden.HTML").write_text(PAGE)
    (tmp_path / "café.txt").write_bytes("Caf\xe9 – \U0001f600.".encode())
    write_docx(tmp_path / "rules.docx")
    write_pdf(tmp_path / "manual.pdf", ["Press the button.", "Wait."], "Coffee machine")
    with ConfinedReader() as reader:
        for path in tmp_path.iterdir():
            assert reader.read(path, path.read_bytes()) == read_document(path)


def test_a_file_that_takes_for_ever_costs_only_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined_reader, "_CPU_S", 1)
    (folder / "endless.html").write_text(ENDLESS_HTML)
    assert errors_of(folder) == {
        "endless.html": "reading it takes more than 1 s of processor time: split it, or save it as plain text"
    }


def test_a_file_that_takes_too_long_on_a_busy_machine_costs_only_itself(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(confined_reader, "_WALL_S", 2.0)
    (folder / "endless.html").write_text(ENDLESS_HTML)
    assert errors_of(folder) == {"endless.html": "reading it took longer than 2 s: split it, or save it as plain text"}


@pytest.mark.skipif(not Path("/proc").exists(), reason="macOS does not limit the address space")
def test_a_file_that_takes_all_the_memory_costs_only_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confined_reader, "_MEMORY_BYTES", 300 << 20)
    write_docx(folder / "bomb.docx")
    with zipfile.ZipFile(folder / "bomb.docx") as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(folder / "bomb.docx", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in parts.items():
            bomb = content.replace(b"<w:body>", b"<w:body>" + b"<w:p/>" * 4_000_000)
            archive.writestr(name, bomb if name == "word/document.xml" else content)
    assert (folder / "bomb.docx").stat().st_size < 500_000
    ((name, reason),) = errors_of(folder).items()
    assert name == "bomb.docx" and "processor time" not in reason  # lxml calls it an "unknown error"


def test_the_process_has_no_secrets_of_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_API_KEY", "secret")
    with ConfinedReader() as reader:
        with pytest.raises(UnreadableDocument, match="it has no text"):
            reader.read(tmp_path / "empty.txt", b"")
        process = reader._process
        assert process is not None
        if Path("/proc").exists():
            assert b"REJOINDER" not in Path(f"/proc/{process.pid}/environ").read_bytes()
    assert process.returncode is not None


def test_a_process_that_somebody_else_has_killed_is_replaced(tmp_path: Path) -> None:
    with ConfinedReader() as reader:
        assert reader.read(tmp_path / "a.txt", b"Words.").blocks
        assert reader._process is not None
        reader._process.kill()
        with pytest.raises(UnreadableDocument, match=r"ended \(SIGKILL\), perhaps for lack of memory: split it"):
            reader.read(tmp_path / "b.txt", b"Words.")
        assert reader.read(tmp_path / "c.txt", b"Words.").blocks


def test_characters_that_cannot_be_written_are_replaced(folder: Path) -> None:
    """A PDF font may say that a letter is half a surrogate pair."""
    writer = PdfWriter()
    unicode = DecodedStreamObject()
    unicode.set_data(
        b"/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <00> <ff> endcodespacerange\n"
        b"1 beginbfchar\n<41> <d800>\nendbfchar\nendcmap"
    )
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"), NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"), NameObject("/ToUnicode"): writer._add_object(unicode),
        }
    )  # fmt: skip
    page = writer.add_blank_page(595, 842)
    page[NameObject("/Resources")] = DictionaryObject(
        {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
    )
    content = DecodedStreamObject()
    content.set_data(b"BT /F1 12 Tf 72 720 Td (word A) Tj ET")
    page[NameObject("/Contents")] = content
    writer.write(str(folder / "half.pdf"))
    assert "\ud800" in read_document(folder / "half.pdf").blocks[0].text
    assert errors_of(folder) == {}
