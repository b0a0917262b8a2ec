"""Which tools a prompt has when a conversation has many."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agent.language_model import RemoteRequest
from agent.tools.tool_selection import MAX_TOOLS, NUM_SELECTED, SelectingLanguageModel, ToolSelection
from chat.types import Message, OfferedTools, Tool
from tests.fakes import FakeLanguageModel

MANY = [
    Tool("get_weather", "The weather in a city, now or as a forecast"),
    Tool("send_email", "Send an email to one of the user's contacts"),
    Tool("find_recipe", "Find a recipe for a dish with its ingredients"),
    Tool("play_music", "Play a song or an artist"),
    Tool("book_flight", "Book a flight between two airports"),
    Tool("get_stock_price", "The price of a share by its ticker symbol"),
    Tool("set_thermostat", "Set the heating to a temperature"),
    Tool("lock_door", "Lock or unlock the front door"),
    Tool("order_taxi", "Order a taxi to an address"),
    Tool("translate", "Translate a sentence into another language"),
    Tool("log_weight", "Record the user's body weight"),
    Tool("add_calendar_entry", "Add an appointment to the calendar"),
]


def select(selection: ToolSelection, text: str) -> list[str]:
    return [tool.name for tool in selection.select(MANY, [Message("system", "…"), Message("user", text)])]


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("What will the weather be in Oslo?", "get_weather"), ("Please book me a flight to Rome.", "book_flight"),
        ("Unlock the door.", "lock_door"), ("Turn the heating down to 18.", "set_thermostat"),
        ("Order me a taxi to the airport.", "order_taxi"), ("I need recipes with leeks.", "find_recipe"),
        ("Put an appointment with the dentist into my calendar.", "add_calendar_entry"),
    ],
)  # fmt: skip
def test_the_tools_that_suit_what_was_said_are_selected(text: str, needed: str) -> None:
    names = select(ToolSelection(), text)
    assert needed in names
    assert len(names) == NUM_SELECTED


def test_a_selection_that_has_what_is_needed_is_kept() -> None:
    selection = ToolSelection()
    first = select(selection, "What is the weather in Oslo?")
    assert select(selection, "Hello.") == first
    assert select(selection, "And what's the weather like in Rome?") == first
    assert select(selection, "Order me a taxi.") != first


def test_few_tools_are_all_in_the_prompt() -> None:
    few = MANY[:MAX_TOOLS]
    assert ToolSelection().select(few, [Message("user", "Order me a taxi.")]) == tuple(few)


async def test_a_function_that_is_required_is_never_left_out() -> None:
    model = FakeLanguageModel()
    seen: list[int] = []

    def prepare(messages: object, *, tools: list[Tool], tool_choice: object) -> None:
        seen.append(len(tools))

    model.prepare = prepare  # type: ignore[method-assign, assignment]
    selecting = SelectingLanguageModel(model)
    selecting.prepare([Message("user", "Hi")], tools=MANY)
    selecting.prepare([Message("user", "Hi")], tools=MANY, tool_choice="required")
    assert seen == [NUM_SELECTED, len(MANY)]


def test_prompts_with_and_without_tools_are_read_by_a_language_model_each() -> None:
    read: list[tuple[str, int]] = []

    class Recording(FakeLanguageModel):
        name = "first"

        def prepare(self, messages: Sequence[Message], *, tools: Sequence[Tool] = (), tool_choice: object = "") -> None:
            read.append((self.name, len(tools)))

        def fork(self) -> Recording:
            fork = Recording()
            fork.name = "second"
            return fork

    model = Recording()
    selecting = SelectingLanguageModel(model)
    for tools in ([], MANY[:2], [], MANY[:2]):
        selecting.prepare([Message("user", "Hi")], tools=tools)
    assert read == [("first", 0), ("second", 2), ("first", 0), ("second", 2)]
    assert model.cancelled  # a conversation has one request at a time
    read.clear()
    cancelled = model.cancelled
    for tools in (MANY[:2], []):
        selecting.prepare([Message("system", "Be brief.")], tools=tools)
    assert read == [("second", 2), ("first", 0)]
    assert model.cancelled == cancelled  # between turns both read ahead


@pytest.mark.parametrize(
    ("calls", "acts", "read"), [([("play_music", "{}")], False, [2]), ([], False, [2, 0]), ([], True, [2])]
)
async def test_a_text_where_a_tool_could_have_looked_something_up_is_written_without_tools_in_the_prompt(
    calls: list[tuple[str, str]], acts: bool, read: list[int]
) -> None:
    tools_read: list[int] = []

    class Recording(FakeLanguageModel):
        async def reply(self, messages, **options):  # type: ignore[no-untyped-def, override]
            tools_read.append(len(options["tools"]))
            async for progress in super().reply(messages, **options):
                yield progress

        def fork(self) -> Recording:
            return Recording()

    model = Recording()
    model.calls = calls
    stream = SelectingLanguageModel(model).reply(
        [Message("user", "Play it.")], tools=MANY[:2], offered=OfferedTools(("play_music",), True, acts)
    )
    text = "".join([progress.committed async for progress in stream if not isinstance(progress, RemoteRequest)])
    assert tools_read == read
    assert text == ("" if calls else "The capital of France is Paris.")
