"""Which words of a transcript sound like a name that is known."""

from __future__ import annotations

import pytest

from voice.known_names import KnownNames


@pytest.mark.parametrize(
    ("name", "transcript", "expected"),
    [
        ("Conshohocken", "How far is it to Kanshohakan?", "How far is it to Conshohocken?"),
        ("Snorkwick", "Where is snore quick, please?", "Where is Snorkwick, please?"),
        ("Lumafen", "Is Lume-Mafen's price fair?", "Is Lumafen's price fair?"),
        ("Carcassonne", 'He said "Carcasson" twice.', 'He said "Carcassonne" twice.'),
        ("amlodipine", "Remind me to take my amletapine.", "Remind me to take my amlodipine."),
    ],
)
def test_a_name_takes_the_place_of_what_sounds_like_it(name: str, transcript: str, expected: str) -> None:
    (found,) = KnownNames([name]).replacements(transcript)
    assert found.within(transcript.split()) == expected


@pytest.mark.parametrize("transcript", ["", "What time is it?", "Is Conshohocken far from Kanshohakan?"])
def test_nothing_is_found_where_nothing_sounds_like_it_or_the_name_is_written(transcript: str) -> None:
    assert not KnownNames(["Conshohocken"]).replacements(transcript)


def test_what_sounds_most_like_a_name_comes_first_and_few_are_tried() -> None:
    names = KnownNames(["Bramblox", *(f"{start}rambelix" for start in "BbPp"), "Tadhg"])
    found = names.replacements("the brambelics are late")
    assert [each.distance for each in found] == sorted(each.distance for each in found)
    assert len(found) == 4


def test_only_so_many_names_are_kept_and_not_those_that_the_recognizer_knows() -> None:
    assert (
        len(KnownNames(f"Xa{first}{second}ra" for first in "bdfklmnprstvz" for second in "aeioubdfklmnprstvz")) == 200
    )
    assert not len(KnownNames(["Tuesday"], lambda name: name != "Tuesday"))
