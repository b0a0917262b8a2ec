"""What only asks the assistant to stop, what asks for something, and what takes long to say."""

from __future__ import annotations

import pytest

from agent.words.english.wishes import asks_to_repeat, is_dismissal, wanted_manner, wants_length


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
        ("Pardon?", True), ("Sorry, can you say that again, please?", True), ("What?", True), ("What was that?", True),
        ("I didn't catch that.", True), ("Could you repeat that?", True), ("Come again?", True), ("Huh?", True),
        ("Say that again, but slower.", True),
        ("A bit slower, please.", True), ("Faster, please.", False), ("Speak up!", True), ("Say it louder!", True),
        ("Sorry, I was at the door. Can you repeat that?", True), ("I heard a bang. What was that?", False),
        ("Repeat after me: good morning.", False), ("What did you say about cats?", False),
        ("Say it in French.", False),
        ("Thanks again!", False), ("Huh, okay.", False), ("What now?", False), ("What would you say?", False),
        ("Set that timer again.", False), ("What time was that?", False), ("", False), ("Please.", False),
    ],
)  # fmt: skip
def test_some_only_want_to_hear_it_again(text: str, wanted: bool) -> None:
    assert asks_to_repeat(text) is wanted


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


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Slower, please.", "slower"), ("Could you speak a little more slowly?", "slower"), ("Slow down!", "slower"),
        ("Can you talk faster?", "faster"), ("You're too fast.", "slower"), ("That was too fast, sorry.", "slower"),
        ("Speak up, please.", "louder"), ("A bit louder.", "louder"), ("Would you be a lot quieter please", "quieter"),
        ("Not so loud!", "quieter"), ("You are talking too quietly.", "louder"), ("Too loud.", "quieter"),
        ("Say that again, but slower.", "slower"), ("Keep your voice down.", "quieter"), ("Speak normally.", "normal"),
        ("Which is faster, a cheetah or a car?", None), ("The car was too slow.", None), ("My dog is too loud.", None),
        ("Not so quick, I'm writing it down!", "slower"), ("Slow down, my pen is dry.", "slower"),
        ("Speak up, I'm in the kitchen and the kettle is on.", "louder"), ("It was too fast, the ball hit him.", None),
        ("Slow down the aging, how?", None), ("Speak French.", None), ("How do I speak more slowly?", None),
        ("Turn the music up.", None),
        ("", None),
        ("Is a train slower?", None), ("Go.", None), ("You're too kind.", None), ("Talk to me.", None),
    ],
)  # fmt: skip
def test_some_want_to_be_spoken_to_in_another_manner(text: str, wanted: str | None) -> None:
    assert wanted_manner(text) == wanted
