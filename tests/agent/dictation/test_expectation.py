"""What the tokens of a cleaned-up dictation are drafted from."""

from __future__ import annotations

import pytest

from agent.dictation.expectation import expected_text


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Is the museum open on Sundays?", "Is the museum open on Sundays?"),
        ("The the cellar smells of of paint.", "The cellar smells of paint."),
        ("Can we, can we meet on Friday?", "Can we meet on Friday?"),
        ("It was, you know, rather late, you know?", "It was rather late."),
        ("I hope you know the way.", "I hope you know the way."),
        ("Bring: a rope, two lamps, and a map.", "Bring:\n- A rope\n- Two lamps\n- A map"),
        (
            "Three things. First, sweep the yard. Second, feed the hens, and finally, lock the gate.",
            "Three things:\n1. Sweep the yard.\n2. Feed the hens.\n3. Lock the gate.",
        ),
        ("Number one, open the lid. Number two, stir.", "1. Open the lid.\n2. Stir."),
        ("She came first, and he came in on the second day.", "She came first, and he came in on the second day."),
        ("", ""),
    ],
)
def test_repetitions_go_and_enumerations_become_lists(said: str, expected: str) -> None:
    assert expected_text(said) == expected
