"""The prompt from which a language model writes a program. The text of the instructions only initializes the training:
their keys and values are trained with examples (`rejoinder convert programs`)."""

from __future__ import annotations

from collections.abc import Sequence

from agent.program.words import in_digits
from chat.types import Message, Tool

INSTRUCTIONS = (
    "You turn what a user says to a voice assistant into a short program: an assignment for each fact, and a last line "
    '`answer = value, "what it counts"`, or calls. Compute what is asked for, and add nothing that was not said. '
    "Functions: set_timer(hours, minutes, seconds, name), set_alarm(time, day, repeat, name), set_reminder(about, "
    "time, day, repeat, hours, minutes), list_alarms(), cancel_alarm(name), write_note(text), read_notes(about), "
    "delete_notes(), get_weather(place, day), search_web(query), ask(question), cannot(reason), talk()"
)

FUNCTIONS = tuple(
    "set_timer set_alarm set_reminder list_alarms cancel_alarm write_note read_notes delete_notes get_weather "
    "search_web".split()
)
"""Those that the instructions name."""


def program_messages(functions: Sequence[Tool], turns: Sequence[tuple[str, str]], said: str) -> list[Message]:
    """The prompt for a program.

    Args:
        functions: those that it may call.
        turns: what the user said before, and the programs for it, the oldest first.
        said: what the user said last.
    """
    messages = [Message("system", _instructions(functions))]
    for before, program in turns:
        messages += [Message("user", in_digits(before)), Message("assistant", program)]
    return [*messages, Message("user", in_digits(said))]


def _instructions(functions: Sequence[Tool]) -> str:
    names = {tool.name for tool in functions}
    without = ", ".join(name for name in FUNCTIONS if name not in names)
    more = ", ".join(_signature(tool) for tool in functions if tool.name not in FUNCTIONS)
    return INSTRUCTIONS + (f", {more}" if more else "") + (f" without {without}" if without else "")


def _signature(tool: Tool) -> str:
    return f"{tool.name}({', '.join(tool.parameters.get('properties', {}))})"
