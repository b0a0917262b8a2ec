"""Search by meaning and by words."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.documents.index import DocumentIndex, content_words
from agent.documents.library import Library
from tests.agent.documents.sample_documents import DIMENSIONS, embed

PASSAGES = {
    "boiler": "Turn the red handle clockwise to switch the boiler on.",
    "garden": "Water the tomatoes every second evening.",
    "rent": "The rent is due on the third of each month.",
}


@pytest.fixture
def library(tmp_path: Path) -> Library:
    library = Library(tmp_path / "documents.sqlite", DIMENSIONS)
    for name, text in PASSAGES.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.txt").write_text(text)
        library.add(tmp_path / name)
        library.update(name, embed, "words")
    return library


def test_the_passage_with_the_words_of_the_question_is_the_best(library: Library) -> None:
    index = DocumentIndex(library, list(PASSAGES), embed)
    for question, name in (
        ("How is the boiler switched on?", "boiler"),
        ("when do I have to water tomato plants", "garden"),
    ):
        best, *others = index.search(question)
        scores = [match.cosine + match.words / 2 for match in (best, *others)]
        assert best.found.title == name
        assert best.words > 0.4 and scores[0] > max(scores[1:])


def test_only_the_chosen_folders_are_searched(library: Library) -> None:
    index = DocumentIndex(library, ["rent", "garden"], embed)
    assert {match.found.title for match in index.search("the red handle of the boiler")} == {"rent", "garden"}


def test_a_change_of_the_library_is_seen_at_once(library: Library, tmp_path: Path) -> None:
    index = DocumentIndex(library, list(PASSAGES), embed)
    other = Library(tmp_path / "documents.sqlite", DIMENSIONS)
    (tmp_path / "rent" / "rent.txt").write_text("Bicycles stand in the yard.")
    other.update("rent", embed, "words")
    other.close()
    assert index.search("Where do bicycles stand?")[0].found.passage.text == "Bicycles stand in the yard."
    library.remove("rent")
    assert index.num_passages == 3  # until the next search
    assert all(match.found.title != "rent" for match in index.search("bicycles"))


def test_words_that_say_nothing_find_nothing(library: Library) -> None:
    index = DocumentIndex(library, list(PASSAGES), embed)
    assert index.search("Can you tell me what that is?") == []
    assert content_words("What's the boiler's red handle, and the boiler?") == ["boiler", "red", "handle"]


def test_punctuation_in_a_question_is_no_syntax(library: Library) -> None:
    index = DocumentIndex(library, list(PASSAGES), embed)
    assert index.search('NEAR("boiler" OR *) AND NOT heading:x -- \'')[0].found.title == "boiler"
