"""The prompt from which a language model writes a program. The text of the instructions only initializes the training:
their keys and values are trained with examples (`rejoinder convert programs`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agent.words.language import language
from chat.types import Message, Tool

_ENGLISH = language("en")

_BUILT_IN = {
    "set_timer": ("hours, minutes, seconds, name", "set timers"),
    "set_alarm": ("time, day, repeat, name", "set alarms"),
    "set_reminder": ("about, time, day, repeat, hours, minutes", "set reminders"),
    "list_alarms": ("", "tell which alarms are set"),
    "cancel_alarm": ("name", "cancel alarms"),
    "write_note": ("text", "take notes"),
    "read_notes": ("about", "read notes"),
    "delete_notes": ("", "delete notes"),
    "get_weather": ("place, day", "tell the weather"),
    "search_web": ("query", "search the web"),
}
"""The functions that the model is trained to call: their parameters, and what a server without one cannot do."""

INSTRUCTIONS = (
    "You turn what a user says to a voice assistant into a short program: an assignment for each fact, and a last line "
    '`answer = value, "what it counts"`, or calls. Compute what is asked for, and add nothing that was not said. '
    f"Functions: {', '.join(f'{name}({parameters})' for name, (parameters, _) in _BUILT_IN.items())}, "
    "ask(question), cannot(reason), talk()"
)


def with_missing(functions: Sequence[Tool]) -> tuple[Tool, ...]:
    """Functions, and those that the model calls even though they are missing: such calls are refused by name
    (`inability`). If they were forbidden, the model would write nonsense in their place."""
    names = {tool.name for tool in functions}
    missing = {name: parameters for name, (parameters, _) in _BUILT_IN.items() if name not in names}
    return (*functions, *(Tool(name, "", _texts(parameters)) for name, parameters in missing.items()))


def inability(names: Sequence[str]) -> str:
    """What cannot be done without some of the built-in functions, as it is said after "I can't"; empty without any."""
    return " or ".join(dict.fromkeys(_BUILT_IN[name][1] for name in names))


def _texts(parameters: str) -> dict[str, Any]:
    properties = {name: {"type": "string"} for name in filter(None, parameters.split(", "))}
    return {"type": "object", "properties": properties, "required": []}


def program_messages(functions: Sequence[Tool], turns: Sequence[tuple[str, str]], said: str) -> list[Message]:
    """The prompt for a program.

    Args:
        functions: those that there are.
        turns: what the user said before, and the programs for it, the oldest first.
        said: what the user said last.
    """
    more = ", ".join(_signature(tool) for tool in functions if tool.name not in _BUILT_IN)
    messages = [Message("system", f"{INSTRUCTIONS}, {more}" if more else INSTRUCTIONS)]
    for before, program in turns:
        messages += [Message("user", _ENGLISH.in_digits(before)), Message("assistant", program)]
    return [*messages, Message("user", _ENGLISH.in_digits(said))]


def _signature(tool: Tool) -> str:
    return f"{tool.name}({', '.join(tool.parameters.get('properties', {}))})"
