"""Choices."""

from __future__ import annotations

import pytest

from agent.capture.choices import Choice, yes_or_no

SERVICE = Choice(prompt="What for?", options={"check-up": ("checkup", "check up"), "cleaning": ("clean",), "other": ()})


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("A check-up, please.", "check-up"),
        ("I need a checkup", "check-up"),
        ("the second one", "cleaning"),
        ("number three", "other"),
        ("the last one", "other"),
        ("cleaning or other", None),
        ("what?", None),
    ],
)
def test_options(text: str, option: str | None) -> None:
    assert SERVICE.hear(text, "") == option


def test_keys_choose_by_place() -> None:
    assert SERVICE.press("2", "") == "cleaning"
    assert SERVICE.press("4", "") is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Yes, please.", "yes"),
        ("yeah, go ahead", "yes"),
        ("no problem, go ahead", "yes"),
        ("yes, please book it", "yes"),
        ("yes I am", "yes"),
        ("of course", "yes"),
        ("yes, but not today", None),
        ("is that it?", None),
        ("that's all", None),
        ("cancel", None),
        ("never mind", None),
        ("No, I would rather come another day next week.", "no"),
        ("no thanks", "no"),
        ("please don't", "no"),
        ("no, not today", "no"),
        ("I'm not sure", None),
        ("what do you mean by correct?", None),
        ("I don't know", None),
    ],
)
def test_yes_or_no(text: str, answer: str | None) -> None:
    assert yes_or_no("Shall I?").hear(text, "") == answer
