"""Word errors by kind of speech."""

from __future__ import annotations

import pytest

from lab.benchmarks.speech_kinds import word_errors


@pytest.mark.parametrize(
    ("reference", "transcript", "expected"),
    [
        ("the file name ...", "the filename", (0, 2)),
        ("touchtone keypad", "touch tone keypad", (0, 2)),
        ("to lock it", "do luck it", (2, 3)),
        ("stop", "", (1, 1)),
        ("", "stop", (1, 0)),
        ("thank you", "thank you very much", (2, 2)),
    ],
)
def test_words_written_as_one_or_two_are_no_errors(reference: str, transcript: str, expected: tuple[int, int]) -> None:
    assert word_errors(reference, transcript, str.lower) == expected
