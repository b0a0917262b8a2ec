"""What callers say to the dialogue itself."""

from __future__ import annotations

import pytest

from agent.capture.commands import Command, agreement, command_in, is_filler


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("No, let's start over.", Command.START_OVER),
        ("Could you repeat that, please?", Command.REPEAT),
        ("Sorry?", Command.REPEAT),
        ("Just a second.", Command.WAIT),
        ("Let me look that up.", Command.WAIT),
        ("That's all.", Command.DONE),
        ("I don't have one.", Command.SKIP),
        ("I don't have an email", Command.SKIP),
        ("Never mind.", Command.CANCEL),
        ("I want to speak to a person.", Command.CANCEL),
        ("no, cancel that please", Command.CANCEL),
        ("No, that's wrong.", None),
        ("five five five", None),
        ("", None),
    ],
)
def test_commands(text: str, command: Command | None) -> None:
    assert command_in(text) is command


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("Yes.", "yes"),
        ("Yes, that's right.", "yes"),
        ("Yes, sir.", "yes"),
        ("Right.", "yes"),
        ("Exactly!", "yes"),
        ("That's correct.", "yes"),
        ("No.", "no"),
        ("No, the last digit is seven.", "no"),
        ("That's wrong.", "no"),
        ("the sixteenth", "unclear"),
        ("yes, but the last one is five", "unclear"),
    ],
)
def test_agreement(text: str, reply: str) -> None:
    assert agreement(text) == reply


def test_what_people_utter_while_they_listen_is_no_answer() -> None:
    assert is_filler("Mhm, um.")
    assert not is_filler("Um, yes.")
    assert not is_filler("oh")  # a zero
