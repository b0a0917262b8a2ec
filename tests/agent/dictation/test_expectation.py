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
        ("Bye bye.", "Bye."),
        ("I really really", "I really"),
        ("call me back, call me back", "Call me back"),
        ("It was, you know, rather late, you know?", "It was rather late."),
        ("I hope you know the way.", "I hope you know the way."),
        ("You know the café on Baker Street?", "You know the café on Baker Street?"),
        ("Dial 5 5 5, then 555 555.", "Dial 5 5 5, then 555 555."),
        ("It was fine. It was fine for me, too.", "It was fine. It was fine for me, too."),
        ("One, two, three, go!", "One, two, three, go!"),
        ("Ready? First, lift it. Second, turn it.", "Ready?\n1. Lift it.\n2. Turn it."),
        ("My guests are, one, Ida, two, Bo, and three, Kim.", "My guests are:\n1. Ida.\n2. Bo.\n3. Kim."),
        ("First unplug it. Then that gets cleaned.", "1. Unplug it.\n2. That gets cleaned."),
        ("Buy: milk, eggs. Then call Bob, please.", "Buy: milk, eggs. Then call Bob, please."),
        ("— … की कि का, : .", "— … की कि का, : ."),
        ("Bring: a rope, two lamps, and a map.", "Bring:\n- A rope\n- Two lamps\n- A map"),
        (
            "Three things. First, sweep the yard. Second, feed the hens, and finally, lock the gate.",
            "Three things:\n1. Sweep the yard.\n2. Feed the hens.\n3. Lock the gate.",
        ),
        ("Number one, open the lid. Number two, stir.", "1. Open the lid.\n2. Stir."),
        ("She came first, and he came in on the second day.", "She came first, and he came in on the second day."),
        (", you know, hello there", "Hello there"),
        ("", ""),
    ],
)
def test_repetitions_go_and_enumerations_become_lists(said: str, expected: str) -> None:
    assert expected_text(said) == expected
