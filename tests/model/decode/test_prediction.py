"""Where a response continues in the text that it rewrites. A token is a word here."""

from __future__ import annotations

import pytest

from model.decode.prediction import Prediction

WORDS = ["the", "The", "report", "like", "is", "almost", "done", "1.", "Sorry", "tomorrow"]


def predicted(text: str, response: str, length: int = 3) -> str:
    prediction = Prediction([WORDS.index(word) for word in text.split()], lambda token: WORDS[token].lower())
    prediction.extend([WORDS.index(word) for word in response.split()])
    return " ".join(WORDS[token] for token in prediction.find(length))


@pytest.mark.parametrize(
    ("text", "response", "follows"),
    [
        ("the report is done", "", "the report is"),
        ("the report is done", "the report", "is done"),
        ("the report is done", "the report is done", ""),
        ("like the report is done", "The", "report is done"),
        ("the report is like almost done", "the report is almost", "done"),
        ("the report is done Sorry the report is almost done", "the report is almost", "done"),
        ("the report is done", "1.", ""),
        ("the report is done", "1. the", "report is done"),
        ("the the report is almost done", "tomorrow the", "the report is"),
        ("the the report is almost done", "tomorrow the report", "is almost done"),
    ],
)
def test_what_a_response_has_left_out_or_added_is_skipped(text: str, response: str, follows: str) -> None:
    assert predicted(text, response) == follows
