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
        ("A bit slower, please.", False), ("Speak up!", False), ("Sorry? What was that?", True),
        ("Okay. One more time.", True),
        ("Um... what?", True), ("Oh, sorry. Once more, please.", True), ("Say it louder!", True),
        ("Sorry, I was at the door. Can you repeat that?", True),
        ("I heard a bang. What was that?", False),
        *((text, False) for text in (
            "Set a timer for five minutes. Say that again.", "Tell me a joke. Say that again.", "I farted. Pardon me.",
            "Add milk to my list. Sorry, I didn't catch that.", "What's the capital of France? I didn't hear you.",
            "We had a great time in your hotel. Come again.", "There was a concert last night. I missed that.",
            "Translate into German. What did you say?",
        )),
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
        ("Slow down a bit.", "slower"), ("Can you talk faster?", "faster"), ("You're too fast.", "slower"),
        ("That was too fast, sorry.", "slower"), ("Speak up, please.", "louder"), ("A bit louder.", "louder"),
        ("Would you be a lot quieter please", "quieter"), ("Not so loud!", "quieter"), ("Too loud.", "quieter"),
        ("You are talking too quietly.", "louder"), ("Say that again, but slower.", "slower"),
        ("Once more, slowly.", "slower"), ("Say that once more, slower.", "slower"), ("Whoa, slow down.", "slower"),
        ("Keep your voice down.", "quieter"), ("Speak normally.", "normal"), ("Pardon? Could you speak up?", "louder"),
        ("Not so quick, I'm writing it down!", "slower"), ("Slow down, my pen is dry.", "slower"),
        ("Speak up, I'm in the kitchen and the kettle is on.", "louder"), ("Wait, not so fast.", "slower"),
        ("I can't hear you. Could you speak louder?", "louder"), ("Don't speak so fast.", "slower"),
        *((text, None) for text in (
            "Which is faster, a cheetah or a car?", "The car was too slow.", "My dog is too loud.", "Speak French.",
            "How do I speak more slowly?", "Turn the music up.", "", "Is a train slower?", "Go.", "You're too kind.",
            "Talk to me.", "It was too fast, the ball hit him.", "Slow down the aging, how?", "Normal.", "Slowly.",
            "Softer.", "It's too loud.", "That's too slow.", "And what's faster?", "Be normal.",
            "Slow down, what's the weather in Rome?", "Go faster, what is twelve times twelve?",
            "Not so fast, is that an idiom?", "Lower your voice, how do you say it in French?",
            "Speed up, said the coach.", "Be quieter, she told the kids.", "Go slowly, then turn left at the light.",
            "Can you speak up, then tell me the time?", "Set a timer. Slower.",
        )),
    ],
)  # fmt: skip
def test_some_want_to_be_spoken_to_in_another_manner(text: str, wanted: str | None) -> None:
    assert wanted_manner(text) == wanted
