"""How documents are divided."""

from __future__ import annotations

from agent.documents.passages import WORDS, Passage, divide, searched_texts
from agent.documents.readers import Block, Document

SENTENCE = "This sentence has exactly six words."


def test_short_blocks_under_one_heading_are_joined_and_headings_divide() -> None:
    blocks = (Block(("A", "B"), "one"), Block(("A", "B"), "Two."), Block(("C",), "Three.", 4))
    assert divide(Document("T", blocks)) == [Passage("A, B", 0, "one\nTwo."), Passage("C", 4, "Three.")]


def test_long_text_is_divided_between_sentences_and_nothing_is_lost() -> None:
    text = " ".join([SENTENCE] * 100)
    passages = divide(Document("T", (Block((), text),)))
    assert " ".join(passage.text for passage in passages) == text
    assert all(passage.text.endswith(".") and len(passage.text.split()) <= WORDS for passage in passages)
    endless = divide(Document("T", (Block((), "word " * 1000),)))
    assert sum(len(passage.text.split()) for passage in endless) == 1000
    assert max(len(passage.text.split()) for passage in endless) <= 121


def test_a_passage_is_found_by_all_of_it_and_by_each_of_its_sentences() -> None:
    passage = Passage("Heating", 0, "The boiler is red. It is very old.\nStart: the red handle\nShort one.")
    assert searched_texts("House", passage) == [
        f"House. Heating. {passage.text}",
        "Heating: The boiler is red.",
        "Heating: It is very old.",
        "Heating: Start: the red handle",
    ]
    assert searched_texts("House", Passage("", 0, "One sentence only, here.")) == ["House. One sentence only, here."]


def test_a_passage_has_the_page_that_it_begins_on() -> None:
    blocks = (Block((), SENTENCE, 1), Block((), SENTENCE, 2), Block((), " ".join([SENTENCE] * 15), 3))
    assert [passage.page for passage in divide(Document("T", blocks))] == [1, 3]
