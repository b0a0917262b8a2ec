"""Calls that are named in dictated words."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agent.plan import Say
from agent.quotation import is_quoted, may_be_quoted
from tests.agent.planning import Setup, calls
from tests.fakes import run_on_virtual_clock


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


@pytest.mark.parametrize(
    ("said", "may_be"),
    [
        ("Unlock the door.", False),
        ("Please unlock the door.", False),
        ("Write down: unlock the door.", True),
        ("Remember to unlock the door.", True),
        ("Open up for the plumber.", False),
    ],
)
def test_only_what_is_named_after_two_words_may_be_dictated(said: str, may_be: bool) -> None:
    assert may_be_quoted("unlock_door", said) == may_be


PAYING = ("pay", '{"euros": 50}')


@pytest.mark.parametrize(
    ("said", "program", "text"),
    [
        ("Write down: pay the plumber.", "write_note('pay the plumber')", "pay the plumber"),
        ("Note that I have to pay Anna.", "write_note('I have to pay Anna')", "I have to pay Anna"),
    ],
)
def test_a_call_that_is_named_only_in_what_is_written_down_is_not_made(
    setup: Callable[..., Setup],
    said: str,
    program: str,
    text: str,
) -> None:
    asked = setup({said: [program]})
    asked.model.calls = [PAYING]
    steps = run_on_virtual_clock(lambda: asked.respond(said))
    assert steps.decisions[-1].do == calls(("write_note", {"text": text})) and not steps.calls


def test_a_call_that_is_named_only_in_what_could_not_be_kept_is_not_made_either(
    setup: Callable[..., Setup],
) -> None:
    said = "Remind me tomorrow to pay Anna."
    asked = setup({said: ["set_reminder(about='pay Anna', day='tomorrow')"]})
    asked.declared = tuple(tool for tool in asked.declared if tool.name != "set_reminder")
    asked.model.calls = [PAYING]
    steps = run_on_virtual_clock(lambda: asked.respond(said))
    assert not steps.calls
    assert steps.decisions[-1].do == Say("Sorry, I can't set reminders.")


@pytest.mark.parametrize(
    ("said", "program"),
    [
        ("Pay the plumber.", "cannot('pay')"),
        ("Pay the plumber, and note that he came.", "cannot('pay')\nwrite_note('he came')"),
        ("Note that he came, and pay him.", "write_note('he came, and pay him')\ncannot('pay')"),
        ("Pay the plumber and note that I paid.", "write_note('I paid')"),
        ("Transfer the rent.", "write_note('the rent')"),
        ("Pay the plumber.", "answer = "),
    ],
)
def test_a_call_that_the_user_asks_for_is_made(setup: Callable[..., Setup], said: str, program: str) -> None:
    asked = setup({said: [program, program]})
    asked.model.calls = [PAYING]
    assert run_on_virtual_clock(lambda: asked.respond(said)).calls == [PAYING]
