"""Phonemes as shapes of the mouth."""

from __future__ import annotations

from itertools import pairwise

import pytest

from voice.pronunciation import Phoneme
from voice.visemes import Viseme, visemes


def shapes(text: str, each_ms: float = 50.0) -> list[tuple[str, int]]:
    """The shapes of phonemes that last equally long."""
    return [(one.shape, one.azure_id) for one in visemes(phonemes(text, each_ms))]


def phonemes(text: str, each_ms: float = 50.0) -> list[Phoneme]:
    return [Phoneme(symbol, n * each_ms, (n + 1) * each_ms) for n, symbol in enumerate(text)]


@pytest.mark.parametrize(
    ("piper", "kokoro", "expected"),
    [
        ("mˈaɪ", "mˈI", [("PP", 21), ("aa", 11), ("ih", 11)]),
        ("tʃˈiːz", "ʧˈiz", [("CH", 16), ("ih", 6), ("SS", 15)]),
        ("fˈoʊn", "fˈOn", [("FF", 18), ("oh", 8), ("ou", 8), ("nn", 19)]),
        ("ðɪs", "ðɪs", [("TH", 17), ("ih", 6), ("SS", 15)]),
        ("ɡɹˈuːp", "ɡɹˈup", [("kk", 20), ("RR", 13), ("ou", 7), ("PP", 21)]),
    ],
)
def test_both_notations_have_the_same_shapes(piper: str, kokoro: str, expected: list[tuple[str, int]]) -> None:
    assert shapes(piper) == shapes(kokoro) == expected


def test_shapes_follow_one_another_without_gaps_and_double_sounds_are_one() -> None:
    found = visemes(phonemes("^bˈæt dˈɔɡ.$"))
    assert found[0].start_ms == 0 and found[-1].end_ms == 600
    assert all(one.end_ms == other.start_ms for one, other in pairwise(found))
    assert [one.shape for one in found] == ["sil", "PP", "aa", "DD", "oh", "kk", "sil"]
    assert found[3] == Viseme("DD", 19, 200, 400)  # the mouth stays as it is for the short space


def test_the_mouth_closes_in_a_pause() -> None:
    assert [shape for shape, _ in shapes("ˈoʊ, nˈoʊ.", 100.0)] == ["sil", "oh", "ou", "sil", "nn", "oh", "ou", "sil"]


def test_symbols_that_nobody_knows_change_nothing() -> None:
    assert shapes("a\u0329☃b") == [("aa", 1), ("PP", 21)]
    assert shapes("") == []
