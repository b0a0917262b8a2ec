"""Letters as people spell them."""

from __future__ import annotations

import pytest

from agent.capture.letters import say_letters, spelled_letters


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        ("S-M-I-T-H.", "smith"),
        ("S. M. I. T. H.", "smith"),
        ("Sierra Mike India Tango Hotel", "smith"),
        ("S as in Sierra, M as in Mary, I T H", "smith"),
        ("N as in Mike, E", "me"),
        ("B for Bravo, R like Romeo", "br"),
        ("No in as in November, but as in Oscar", "no"),
        ("eat is in echo, and is in November", "en"),
        ("double T, E", "tte"),
        ("double you, why", "wy"),
        ("b, oh, bee", "bob"),
        ("capital M, C", "mc"),
        ("O apostrophe N", "o'n"),
        ("A 4 2", "a42"),
        ("It's Smith, S M Y T H", "smyth"),
        ("I am Bob", ""),
        ("please ask for Mike", ""),
        ("I see why you are here", ""),
        ("Why are you?", ""),
    ],
)
def test_the_letters_that_a_text_spells(text: str, letters: str) -> None:
    assert spelled_letters(text) == letters


def test_one_letter_counts_where_it_stands_alone_or_has_a_word() -> None:
    assert spelled_letters("N.") == ""
    assert spelled_letters("N.", alone=True) == "n"
    assert spelled_letters("N as in November") == "n"
    assert spelled_letters("bee", alone=True) == "b"


def test_letters_are_read_back_one_by_one_or_by_the_alphabet() -> None:
    assert say_letters("o'b2") == "O, apostrophe, B, two"
    assert say_letters("mn", by_alphabet=True) == "M as in Mike, N as in November"
