"""What only asks the assistant to stop, and what asks for something."""

from __future__ import annotations

import pytest

from agent.words.english.dismissals import is_dismissal


@pytest.mark.parametrize(
    "text",
    [
        "Stop.", "stop", "Stop!", "Never mind.", "Oh, never mind.", "No, forget it, thanks.", "Okay, that’s enough.",
        "Please stop talking.", "Be quiet now, please.", "Um, nevermind.", "Actually, forget about it.",
        "Sorry, never mind.", "Stop it, please.", "It doesn't matter.",
    ],
)  # fmt: skip
def test_it_is_one(text: str) -> None:
    assert is_dismissal(text)


@pytest.mark.parametrize(
    "text",
    [
        "", "Okay.", "Thank you.", "No.", "Stop the timer.", "Never mind the weather, what time is it?",
        "Where is the next bus stop?", "Forget it, set a timer for an hour instead.", "What does never mind mean?",
        "How do I stop smoking?", "That's not enough.", "Cancel my alarm.", "Don't stop.", "Stop stop stop the music",
    ],
)  # fmt: skip
def test_it_is_none(text: str) -> None:
    assert not is_dismissal(text)
