"""Names, spelled or said."""

from __future__ import annotations

import pytest

from agent.capture.names import SpelledEntry, SpelledName

NAME = SpelledName()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Smith, S-M-I-T-H.", "Smith"),
        ("My last name is O'Brien.", "O'Brien"),
        ("It's Garcia.", "Garcia"),
        ("SMYTHE", "Smythe"),
        ("Mike.", "Mike"),
        ("Anna Lee", "Anna Lee"),
        ("That's M as in Mike, A, Y, double E", "Mayee"),
        ("K-O-W-A-L-S-K-I", "Kowalski"),
    ],
)
def test_names(text: str, name: str) -> None:
    entry = NAME.hear(text, NAME.empty)
    assert entry is not None
    assert NAME.value(entry) == name


@pytest.mark.parametrize("text", ["What do you need it for?", "I don't want to say that to you", "", "Hello."])
def test_what_is_no_name(text: str) -> None:
    assert NAME.hear(text, NAME.empty) is None


def test_letters_continue_a_name_and_a_second_spelling_replaces_it() -> None:
    first = NAME.hear("K O W A", NAME.empty)
    assert first is not None
    assert NAME.hear("L S", first) == SpelledEntry("kowals", spelled=True)
    assert NAME.hear("K O V A L", first) == SpelledEntry("koval", spelled=True)


def test_a_name_is_read_back_in_letters_and_by_the_alphabet_once_it_was_wrong() -> None:
    assert NAME.read_back(SpelledEntry("lee"), careful=False) == "Lee, spelled L, E, E"
    assert NAME.read_back(SpelledEntry("mn", spelled=True), careful=True) == "M as in Mike, N as in November"


def test_a_letter_is_corrected() -> None:
    entry = SpelledEntry("smith", spelled=True)
    assert NAME.correct("no, with a Y instead of I", entry) == SpelledEntry("smyth", spelled=True)
    assert NAME.correct("without the h", entry) == SpelledEntry("smit", spelled=True)
