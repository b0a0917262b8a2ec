"""Which words of a text may be names."""

from __future__ import annotations

from agent.words.names import names_in, words_in


def test_names_are_written_with_a_capital_letter_only() -> None:
    texts = ["Ask Xiomara's sister (Gudrun Vik-Hansen). Please wait.", "Gudrun said please. NASA called, and Bo."]
    assert names_in(texts) == ["Gudrun", "Xiomara", "Hansen"]


def test_all_words_that_are_long_enough_are_found() -> None:
    assert list(words_in(["take amlodipine at 7:30, “daily”"])) == ["take", "amlodipine", "daily"]
