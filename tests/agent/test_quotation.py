"""Calls that are named in dictated words."""

from __future__ import annotations

import pytest

from agent.quotation import is_quoted


@pytest.mark.parametrize(
    ("function", "said", "text", "quoted"),
    [
        (
            "unlock_door",
            "Write down: unlock the door for the plumber at nine.",
            "unlock the door for the plumber",
            True,
        ),
        ("unlockDoor", "Write down: unlock the door.", "unlock the door", True),
        ("home.unlock-door", "Note that the door is unlocked.", "the door is unlocked", True),
        ("unlock_door", "Unlock the door and write down: the door is broken.", "the door is broken", False),
        ("unlock_door", "Write down unlock the door, and unlock it.", "unlock the door", False),
        ("add_shopping_item", "Add milk to the shopping list.", "milk", False),
        ("pay", "Write down: the payment is late.", "the payment is late", False),
        ("unlock_door", "Open up for the plumber.", "open up", False),
        ("unlock_door", "Unlock the door.", "", False),
    ],
)
def test_a_call_is_quoted_if_only_the_kept_text_names_it(function: str, said: str, text: str, quoted: bool) -> None:
    assert is_quoted(function, said, [text]) == quoted
