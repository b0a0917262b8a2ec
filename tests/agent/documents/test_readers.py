"""What is read of each kind of file."""

from __future__ import annotations

import os
import time
import zipfile
from pathlib import Path

import docx
import pytest

from agent.documents import readers
from agent.documents.library import Library
from agent.documents.readers import Block, UnreadableDocument, file_bytes
from tests.agent.documents.sample_documents import HOUSE, PAGE, embed, read_document, write_docx, write_pdf


def test_markdown_keeps_its_headings_lists_and_tables_and_loses_its_markup(tmp_path: Path) -> None:
    (tmp_path / "house.md").write_text(HOUSE)
    document = read_document(tmp_path / "house.md")
    assert document.title == "The House on Mill Lane"
    assert document.blocks == (
        Block((), "The house has five rooms, and the cellar."),
        Block(("Heating", "Boiler"), "Turn the red handle clockwise to switch the boiler on."),
        Block(("Rubbish",), "day: Monday; bin: paper"),
        Block(("Rubbish",), "day: Thursday; bin: glass"),
        Block(("Rubbish",), "Put the bins out before seven."),
    )


def test_markdown_reads_images_by_their_description_and_the_text_of_html(tmp_path: Path) -> None:
    text = "# The *big*, old plan\n\nSee ![a map of it](map.png).  \nGo <b>left</b>.\n\n<p>Ring twice.</p>\n\n"
    (tmp_path / "plan.md").write_text(text)
    document = read_document(tmp_path / "plan.md")
    assert document.title == "The big, old plan"
    assert [block.text for block in document.blocks] == ["See a map of it. Go left.", "Ring twice."]


def test_a_line_break_separates_words(tmp_path: Path) -> None:
    (tmp_path / "address.md").write_text("Main Street 5<br/>12345 Town, a <b>bo</b>ld one.")
    assert read_document(tmp_path / "address.md").blocks == (Block((), "Main Street 5 12345 Town, a bold one."),)
    text = "<p>Main Street 5<br>12345 <b>To</b>wn</p><div>One<p>two</p>three<hr>four</div>"
    (tmp_path / "address.html").write_text(text)
    texts = [block.text for block in read_document(tmp_path / "address.html").blocks]
    assert texts == ["Main Street 5 12345 Town", "One three four", "two"]


def test_html_without_a_body_keeps_all_its_text(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<!DOCTYPE html><title>Water</title>The tap <i>drips</i>.<p>Call Ann.</p>Now.")
    document = read_document(tmp_path / "page.html")
    assert document.title == "Water"
    assert [block.text for block in document.blocks] == ["The tap drips. Now.", "Call Ann."]


def test_front_matter_with_the_line_ends_of_windows_is_recognized(tmp_path: Path) -> None:
    (tmp_path / "plan.md").write_bytes(b"---\r\ntitle: The plan\r\n---\r\n\r\nDig.\r\n")
    document = read_document(tmp_path / "plan.md")
    assert (document.title, document.blocks) == ("The plan", (Block((), "Dig."),))


def test_html_is_read_without_menus_and_scripts(tmp_path: Path) -> None:
    (tmp_path / "garden.html").write_text(PAGE)
    document = read_document(tmp_path / "garden.html")
    assert document.title == "The garden"
    assert document.blocks == (
        Block((), "Water the tomatoes every second evening."),
        Block(("Tools",), "The spade hangs in the shed."),
        Block(("Tools",), "plant: beans; month: May"),
    )


def test_text_is_divided_at_blank_lines_and_named_after_its_file(tmp_path: Path) -> None:
    (tmp_path / "house-rules_2024.txt").write_bytes("Quiet\nhours.\r\n\r\nCaf\xe9.\n".encode("cp1252"))
    document = read_document(tmp_path / "house-rules_2024.txt")
    assert document.title == "house rules 2024"
    assert [block.text for block in document.blocks] == ["Quiet hours.", "Café."]


def test_pdf_pages_are_numbered(tmp_path: Path) -> None:
    write_pdf(tmp_path / "manual.pdf", ["Press the green button.", "Wait for the light."], "Coffee machine")
    document = read_document(tmp_path / "manual.pdf")
    assert document.title == "Coffee machine"
    assert [(block.page, block.text) for block in document.blocks] == [
        (1, "Press the green button."),
        (2, "Wait for the light."),
    ]


def test_word_files_keep_headings_and_tables(tmp_path: Path) -> None:
    write_docx(tmp_path / "rules.docx")
    document = read_document(tmp_path / "rules.docx")
    assert document.title == "Rules of the club"
    assert document.blocks == (
        Block(("Membership",), "Members pay forty euros a year."),
        Block(("Membership",), "age: child; fee: none"),
    )


def test_a_sentence_is_no_title(tmp_path: Path) -> None:
    (tmp_path / "note.md").write_text(f"# {'word ' * 12}\n\nText.\n")
    assert read_document(tmp_path / "note.md").title == "note"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("damaged.pdf", b"%PDF-1.4 nothing else", "it is damaged, or is no PDF file"),
        ("damaged.docx", b"PK nothing else", "it is damaged, or is no DOCX file"),
        ("binary.txt", b"\xff\0\1\2" * 9, "it is no text"),
        ("empty.md", b"# \n\n---\n", "it has no text"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, name: str, content: bytes, reason: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnreadableDocument, match=reason):
        read_document(tmp_path / name)


def test_protected_scanned_and_huge_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pdf(tmp_path / "secret.pdf", ["Secret."], password="word")
    with pytest.raises(UnreadableDocument, match="protected with a password"):
        read_document(tmp_path / "secret.pdf")
    write_pdf(tmp_path / "scan.pdf", [""])
    with pytest.raises(UnreadableDocument, match="is it a scan"):
        read_document(tmp_path / "scan.pdf")
    monkeypatch.setattr(readers, "MAX_FILE_BYTES", 10)
    with pytest.raises(UnreadableDocument, match="split it"):
        read_document(tmp_path / "scan.pdf")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a named pipe")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    with pytest.raises(UnreadableDocument, match="not a regular file"):
        read_document(tmp_path / "pipe.txt")
    library = Library(tmp_path / "library.sqlite")
    name = library.add(tmp_path)
    library.update(name, embed, "model")
    assert library.find(name).errors == (("pipe.txt", "it is not a regular file"),)
    library.close()


def test_no_more_of_a_file_is_read_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "huge.txt"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # 1 TiB of nothing
    monkeypatch.setattr(readers, "MAX_FILE_BYTES", 1000)
    with pytest.raises(UnreadableDocument, match="split it"):
        file_bytes(path)


def test_a_small_archive_with_much_in_it_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "bomb.docx"
    write_docx(path)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/media/bomb.xml", bytes(2_000_000))
    monkeypatch.setattr(readers, "_MAX_UNPACKED_BYTES", 1_000_000)
    with pytest.raises(UnreadableDocument, match="MB unpacked"):
        read_document(path)


def test_a_cell_that_spans_columns_and_rows_is_in_each_of_them(tmp_path: Path) -> None:
    document = docx.Document()
    table = document.add_table(rows=3, cols=3)
    for cell, text in zip([cell for row in table.rows for cell in row.cells], "a b c d e f g h i".split(), strict=True):
        cell.text = text
    table.cell(1, 0).merge(table.cell(1, 1)).text = "wide"
    table.cell(1, 2).merge(table.cell(2, 2)).text = "tall"
    document.save(str(tmp_path / "table.docx"))
    assert [block.text for block in read_document(tmp_path / "table.docx").blocks] == [
        "a: wide; b: wide; c: tall", "a: g; b: h; c: tall",
    ]  # fmt: skip


def test_a_cell_spans_no_more_columns_than_a_table_can_have(tmp_path: Path) -> None:
    document = docx.Document()
    table = document.add_table(rows=1, cols=1)
    table.cell(0, 0).text = "wide"
    table.cell(0, 0)._tc.grid_span = 2_000_000_000
    document.save(str(tmp_path / "table.docx"))
    assert read_document(tmp_path / "table.docx").blocks


def test_html_that_nests_deeply_takes_no_longer_than_other_html(tmp_path: Path) -> None:
    (tmp_path / "nested.html").write_text("<div>word " * 3000)
    (tmp_path / "tables.html").write_text("<table><tr><td>word " * 300)
    started = time.process_time()
    assert len(read_document(tmp_path / "nested.html").blocks) == 3000
    assert read_document(tmp_path / "tables.html").blocks
    assert time.process_time() - started < 5  # 800 took ten seconds
    (tmp_path / "many.html").write_text("<b>" * 200_001)
    with pytest.raises(UnreadableDocument, match="more than 200,000 tags"):
        read_document(tmp_path / "many.html")


@pytest.mark.parametrize("error", [MemoryError, RecursionError])
def test_a_parser_that_runs_out_of_memory_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def read(data: bytes) -> tuple[str, list[Block]]:
        raise error

    (tmp_path / "large.txt").write_text("Words.")
    monkeypatch.setitem(readers.READERS, ".txt", read)
    with pytest.raises(UnreadableDocument, match="its parts are nested too deeply, or too many: split it"):
        read_document(tmp_path / "large.txt")


def test_what_a_document_repeats_is_short(tmp_path: Path) -> None:
    """The name of a column is in every row, and a heading in every passage below it."""
    long = "long " * 10_000
    (tmp_path / "table.html").write_text(
        f"<h2>{long}</h2><table><tr><th>{long}</th></tr>{'<tr><td>word</td></tr>' * 9}</table>"
    )
    (tmp_path / "table.md").write_text(f"# {'long' * 10_000}\n\n## {long}\n\n| {long} |\n|---|\n" + "| word |\n" * 9)
    for name in ("table.html", "table.md"):
        document = read_document(tmp_path / name)
        assert document.title == "table"
        assert len(document.blocks) == 9
        for block in document.blocks:
            assert len(block.text) < 250 and max(map(len, block.headings)) <= 200


def test_a_document_with_more_text_than_a_library_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "_MAX_TEXT", 10_000)
    texts = {
        "long.txt": "word " * 2001,
        "many.txt": "a\n\n" * 101,
        "headings.md": "## long heading " * 9 + "\n\na\n" * 101,
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(UnreadableDocument, match="characters of text: split it"):
            read_document(tmp_path / name)
    (tmp_path / "enough.txt").write_text("word " * 1900)
    assert read_document(tmp_path / "enough.txt").blocks
