"""What only asks the assistant to stop, what asks for something, and what takes long to say."""

from __future__ import annotations

import pytest

from agent.words.english.wishes import is_dismissal, wants_length


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


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Tell me a story about a fox.", True), ("Explain it in detail.", True), ("Recite a poem.", True),
        ("Count to twenty.", True), ("Tell me more.", True), ("Give me the full list.", True),
        ("How do I make pancakes?", False), ("Give me three ideas.", False), ("What's the tallest tower?", False),
        ("How long is the Nile?", False), ("", False),
    ],
)  # fmt: skip
def test_some_requests_ask_for_what_takes_long_to_say(text: str, wanted: bool) -> None:
    assert wants_length(text) is wanted
