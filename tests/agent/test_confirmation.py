"""What counts as a clear yes."""

from __future__ import annotations

import pytest

from agent.confirmation import reply_to_question


@pytest.mark.parametrize(
    "text",
    [
        "Yes.",
        "yeah, sure",
        "Okay, go ahead.",
        "Yes please do it now",
        "Of course!",
        "That’s right.",
        "Um, yes.",
        "Yes, that's okay.",
        "All right, thank you.",
    ],
)
def test_a_clear_yes(text: str) -> None:
    assert reply_to_question(text) == "yes"


@pytest.mark.parametrize("text", ["No.", "No, thanks.", "Please don't.", "Never mind", "Stop", "I'd rather not."])
def test_a_no(text: str) -> None:
    assert reply_to_question(text) == "no"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Yes, but to Anna instead.",
        "Maybe.",
        "What?",
        "Yes no wait",
        "I think so?  Hmm.",
        "Please.",
        "Send ten more.",
        "Is it okay?",
        "Um, is it all right",
        "Okay?",
        "Sure?",
        "That's all right, thank you.",
        "That's okay, thanks.",
        "That is OK.",
    ],
)
def test_anything_else_is_no_yes(text: str) -> None:
    assert reply_to_question(text) == "unclear"
