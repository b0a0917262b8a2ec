"""Which tools a prompt has when a conversation has many."""

from __future__ import annotations

import asyncio

import pytest

from agent.planner import Planner
from agent.tool_runs import ToolRuns
from agent.tools.server_tools import ServerTools, ToolSettings
from agent.tools.tool_selection import MAX_TOOLS, NUM_SELECTED, ToolSelection, describing_stems, stems
from chat.types import Ask, Message, Tool, ToolChoice
from tests.fakes import FakeLanguageModel, run_on_virtual_clock

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


@pytest.mark.parametrize(("choice", "num_declared"), [("auto", NUM_SELECTED), ("required", len(MANY))])
def test_a_function_that_is_required_is_never_left_out(choice: ToolChoice, num_declared: int) -> None:
    tools, model = ServerTools(ToolSettings(builtin=False)).local_conversation(), FakeLanguageModel()
    planner = Planner(model, ToolRuns(tools, asyncio.ensure_future, lambda: None))
    ask = Ask([Message("user", "Order me a taxi.")], MANY, choice)

    async def respond() -> None:
        async for _ in planner.respond(ask):
            pass

    run_on_virtual_clock(respond)
    assert len(model.asked[0].tools) == num_declared


def test_words_are_compared_without_their_endings() -> None:
    assert stems("Texting the lampLights of our flats?") == stems("text lamp light our flat") == [
        "text", "lamp", "light", "our", "flat",
    ]  # fmt: skip


def test_a_tool_is_described_by_its_name_its_parameters_and_their_values() -> None:
    room = {"type": "string", "description": "Which room.", "enum": ["kitchen", "attic"]}
    rooms = {"type": "array", "items": {"type": "string", "enum": ["cellar"]}}
    tool = Tool("switch_lamp", "Dims lights.", {"type": "object", "properties": {"room": room, "others": rooms}})
    found = describing_stems(tool)
    assert set(found) == {"switch", "lamp", "dim", "light", "room", "kitchen", "attic", "other", "cellar"}
    assert found["lamp"] > found["light"]
