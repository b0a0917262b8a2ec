"""E-mail addresses as people say them."""

from __future__ import annotations

import pytest

from agent.capture.email import Email
from agent.capture.field import Progress

EMAIL = Email()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("john.smith@example.com", "john.smith@example.com"),
        ("My e-mail is John dot Smith at example dot com.", "john.smith@example.com"),
        ("It's j o h n underscore forty two at gmail dot com", "john_42@gmail.com"),
        ("J-O-H-N at G mail.com", "john@gmail.com"),
        ("anna dash lee at example dot co dot uk", "anna-lee@example.co.uk"),
        ("Mike at yahoo.com", "mike@yahoo.com"),
        ("john smith, all one word, at hotmail dot com", "johnsmith@hotmail.com"),
        ("J Smith 7 at outlook.com.", "jsmith7@outlook.com"),
        ("info plus news at web dot de", "info+news@web.de"),
        ("that's l e e at m i t dot e d u", "lee@mit.edu"),
        ("bob at gmailcom", "bob@gmail.com"),
        ("It's Tom42 at Yahoo.com.", "tom42@yahoo.com"),
        ("a-n-n-a-dot-w-e-b-e-r-gmail.com", "anna.weber@gmail.com"),
        ("anna and gmail.com", "anna@gmail.com"),
    ],
)
def test_addresses(text: str, address: str) -> None:
    entry = EMAIL.hear(text, "")
    assert entry == address
    assert EMAIL.progress(entry) in (Progress.POSSIBLE, Progress.COMPLETE)


def test_an_address_comes_in_parts() -> None:
    entry = EMAIL.hear("john dot smith", "")
    assert entry == "john.smith"
    assert EMAIL.progress(entry) is Progress.PARTIAL
    assert EMAIL.ask_rest(entry) == "J, O, H, N, dot, S, M, I, T, H. Please go on, with at and what follows."
    entry = EMAIL.hear("at example", entry)
    assert entry is not None
    assert EMAIL.hear("dot com", entry) == "john.smith@example.com"


def test_a_sentence_is_no_address() -> None:
    assert EMAIL.hear("Why do you need that?", "") is None
    assert EMAIL.hear("hello", "john@example.co") is None
    assert EMAIL.hear("dot uk", "john@example.co") == "john@example.co.uk"


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("No, it's at yahoo dot com", "john@yahoo.com"),
        ("no, it's gmail dot com", "john@gmail.com"),
        ("no, dot org", "john@example.org"),
        ("the last letter is M as in Mike", "johm@example.com"),
    ],
)
def test_corrections(text: str, after: str) -> None:
    assert EMAIL.correct(text, "john@example.com") == after


def test_it_is_read_back_in_letters_with_a_known_domain_in_words() -> None:
    assert EMAIL.read_back("j.s@gmail.com", careful=False) == "J, dot, S, at gmail dot com"
    assert EMAIL.read_back("j@acme.org", careful=False) == "J, at A, C, M, E dot org"
