"""Verbosity is an instruction that the conversation does not keep."""

from __future__ import annotations

from chat.types import Message
from server.chat_completions.verbosity import with_verbosity

QUESTION = Message("user", "What is a lighthouse?")


def test_medium_is_the_models_own_length() -> None:
    assert with_verbosity([QUESTION], None) == with_verbosity([QUESTION], "medium") == [QUESTION]


def test_the_newest_question_asks_for_the_length() -> None:
    for verbosity, words in (("low", "one short sentence"), ("high", "at length")):
        earlier, newest = with_verbosity([QUESTION, QUESTION], verbosity)  # type: ignore[arg-type]
        assert earlier == QUESTION and newest.content.startswith(QUESTION.content) and words in newest.content


def test_after_a_tools_output_the_instructions_do() -> None:
    output = Message("tool", "a tower", tool_call_id="call_1")
    first, *rest = with_verbosity([Message("system", "Be kind."), QUESTION, output], "low")
    assert first.content.startswith("Be kind.") and "one short sentence" in first.content and rest == [QUESTION, output]
    first, *rest = with_verbosity([QUESTION, output], "low")
    assert first.role == "system" and rest == [QUESTION, output]
