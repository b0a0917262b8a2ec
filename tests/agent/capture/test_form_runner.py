"""Forms in a conversation, which a tool asks the user to fill in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from agent.capture import Form, PhoneNumber, yes_or_no
from agent.capture.form_runner import Dialogue, NotCaptured
from agent.tools.protocol import ToolOutput, ToolTraits
from chat.types import Tool
from tests.voice.session_harness import SessionHarness, response_texts, run_session
from voice import events
from voice.history import Item, silent_turn
from voice.playback import SessionSettings

PHONE = Form(phone=PhoneNumber())
READ_BACK = "I have five five five, one two three, four five six seven. Is that right?"


@dataclass
class FormTools:
    """One tool, `sign_up`, that runs `work` with the dialogue. Its time limit is shorter than any form takes."""

    work: Callable[[Dialogue], Coroutine[Any, Any, str]]
    outputs: list[str] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)

    def traits(self, name: str) -> ToolTraits | None:
        return ToolTraits(timeout_s=1.0) if name == "sign_up" else None

    def question(self, name: str, arguments: str) -> str:
        return "?"

    def names(self) -> list[str]:
        return []

    pronunciations: dict[str, str] = field(default_factory=dict)

    def add_pronunciations(self, said: Mapping[str, str]) -> None:
        self.pronunciations |= said

    functions: tuple[Tool, ...] = ()
    replaced: frozenset[str] = frozenset()

    async def call(self, name: str, arguments: str, dialogue: Dialogue) -> ToolOutput:
        try:
            self.outputs.append(await self.work(dialogue))
        except BaseException as error:
            self.errors.append(error)
            raise
        return ToolOutput(self.outputs[-1], self.outputs[-1])


async def ask_for_a_number(dialogue: Dialogue) -> str:
    return f"Noted: {(await dialogue.fill_in(PHONE))['phone']}."


def run(tools: FormTools, scenario: Callable[[SessionHarness], Coroutine[Any, Any, None]]) -> SessionHarness:
    """A conversation that begins with the tool."""

    async def begin(harness: SessionHarness) -> None:
        harness.session.open_with("sign_up")
        await harness.hear(4.0, 0.0)
        await scenario(harness)

    return run_session(begin, SessionSettings(tools=(Tool("sign_up"),)), tools)


async def say(harness: SessionHarness, text: str, silence: float = 6.0) -> None:
    harness.recognizer.text = text
    await harness.hear(1.0, 0.5)
    await harness.hear(silence, 0.0)


def test_a_form_asks_instead_of_the_language_model_and_the_tool_gets_its_values() -> None:
    async def scenario(harness: SessionHarness) -> None:
        await say(harness, "five five five one two three four five six seven")
        await say(harness, "yes")

    tools = FormTools(ask_for_a_number)
    harness = run(tools, scenario)
    assert tools.outputs == ["Noted: 5551234567."]
    texts = [text for text in response_texts(harness) if text]
    assert texts == ["What is your phone number?", READ_BACK, "Thank you.", "Noted: 5551234567."]
    assert harness.language_model.prompts == []


def test_the_language_model_starts_a_form_by_calling_the_tool() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.calls = [("sign_up", "{}")]
        await say(harness, "Please sign me up.")
        harness.language_model.calls = []
        await say(harness, "5551234567")
        await say(harness, "yes")

    tools = FormTools(ask_for_a_number)
    harness = run_session(scenario, SessionSettings(tools=(Tool("sign_up"),)), tools)
    texts = [text for text in response_texts(harness) if text]
    assert texts == ["What is your phone number?", READ_BACK, "Thank you.", "Noted: 5551234567."]
    assert len(harness.language_model.prompts) == 1


def test_what_was_only_speculated_about_changes_nothing() -> None:
    """The caller goes on after a pause: the turn is one, and its digits count once."""

    async def scenario(harness: SessionHarness) -> None:
        harness.recognizer.text = "five five five"
        await harness.hear(1.0, 0.5)
        await harness.hear(0.5, 0.0)  # a speculative response is prepared
        await say(harness, "five five five one two three four five six seven")

    harness = run(FormTools(ask_for_a_number), scenario)
    assert [text for text in response_texts(harness) if text] == ["What is your phone number?", READ_BACK]


def test_a_caller_who_dictates_is_waited_for() -> None:
    async def scenario(harness: SessionHarness) -> None:
        await say(harness, "five five five", silence=1.2)
        assert len(harness.events_of(events.SpeechStopped)) == 0
        await harness.hear(2.0, 0.0)
        await say(harness, "one two three four five six seven", silence=1.0)
        assert len(harness.events_of(events.SpeechStopped)) == 2  # the number is complete

    run(FormTools(ask_for_a_number), scenario)


def test_an_interruption_of_the_read_back_is_a_correction_of_it() -> None:
    async def scenario(harness: SessionHarness) -> None:
        await say(harness, "5551234567", silence=1.2)
        await say(harness, "No, the last digit is eight.")
        await say(harness, "yes")

    tools = FormTools(ask_for_a_number)
    harness = run(tools, scenario)
    assert tools.outputs == ["Noted: 5551234568."]
    interrupted = [
        item for item in harness.session.history.items if isinstance(item, Item) and item.heard_ms is not None
    ]
    assert READ_BACK.startswith(interrupted[0].heard_text.strip())


def test_a_murmur_over_the_read_back_lets_it_go_on() -> None:
    async def scenario(harness: SessionHarness) -> None:
        await say(harness, "5551234567", silence=1.0)
        harness.recognizer.text = "Mhm."
        await harness.hear(0.3, 0.5)
        await harness.hear(4.0, 0.0)
        await say(harness, "yes")

    tools = FormTools(ask_for_a_number)
    harness = run(tools, scenario)
    assert tools.outputs == ["Noted: 5551234567."]
    assert not any(text.count("I have") > 1 for text in response_texts(harness))


def test_written_answers_and_keys_count_as_well() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.session.history.add(Item("typed", "user", "five five five", spoken=False, complete=True))
        harness.session.respond()
        await harness.hear(4.0, 0.0)
        text = "The caller pressed 1 2 3 4 5 6 7 hash on the telephone's keys."
        harness.session.history.add(Item("keys", "system", text, spoken=False, complete=True))
        harness.session.respond()
        await harness.hear(8.0, 0.0)
        await say(harness, "yes")

    tools = FormTools(ask_for_a_number)
    run(tools, scenario)
    assert tools.outputs == ["Noted: 5551234567."]


def test_a_turn_in_which_nothing_was_said_is_no_answer() -> None:
    async def scenario(harness: SessionHarness) -> None:
        await say(harness, "five five five")
        harness.session.history.add(silent_turn(6.0))
        harness.session.respond()
        await harness.hear(4.0, 0.0)
        await say(harness, "one two three four five six seven")
        await say(harness, "yes")

    tools = FormTools(ask_for_a_number)
    harness = run(tools, scenario)
    assert tools.outputs == ["Noted: 5551234567."]
    assert response_texts(harness).count("five five five. Please go on.") == 2


def test_several_forms_follow_each_other() -> None:
    async def sign_up(dialogue: Dialogue) -> str:
        number = await dialogue.fill_in(PHONE)
        sure = await dialogue.fill_in(Form(sure=yes_or_no("Shall I call you?"), closing="Good."))
        return f"{number['phone']} {sure['sure']}"

    async def scenario(harness: SessionHarness) -> None:
        await say(harness, "5551234567")
        await say(harness, "yes")
        await say(harness, "no")

    tools = FormTools(sign_up)
    harness = run(tools, scenario)
    assert tools.outputs == ["5551234567 no"]
    texts = [text for text in response_texts(harness) if text]
    assert texts[2:] == ["Thank you.", "Shall I call you?", "Good.", "5551234567 no"]


@pytest.mark.parametrize(("answers", "outcome"), [(["never mind"], "cancelled"), (["what a day"] * 4, "given_up")])
def test_a_form_that_is_not_filled_in_raises(answers: list[str], outcome: str) -> None:
    async def scenario(harness: SessionHarness) -> None:
        for answer in answers:
            await say(harness, answer, silence=8.0)

    tools = FormTools(ask_for_a_number)
    run(tools, scenario)
    (error,) = tools.errors
    assert isinstance(error, NotCaptured)
    assert (error.outcome, error.field) == (outcome, "phone")


def test_the_end_of_the_conversation_ends_the_form() -> None:
    async def scenario(harness: SessionHarness) -> None:
        await say(harness, "five five five")

    tools = FormTools(ask_for_a_number)
    run(tools, scenario)
    assert [type(error) for error in tools.errors] == [asyncio.CancelledError]
