"""The built-in tools that compute: programs, conversions of units, times and dates."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from fractions import Fraction
from typing import Annotated

from pydantic import Field

from agent.program.evaluator import read_clock, run_program
from agent.program.places import zone_of
from agent.program.speech import answer, spoken_date, spoken_time
from agent.program.units import convert as converted
from agent.program.values import BadProgram, Clock, Duration, Quantity, add, subtract
from agent.tools.function_tool import ServerTool, Spoken, function_tool, tool
from agent.words.language import language

_ENGLISH = language("en")

CALCULATE = "calculate"
"""The tool that runs programs."""

Number = Annotated[float, Field(ge=-1e15, le=1e15)]


def calculator_tools(now: Callable[[], datetime]) -> list[ServerTool]:
    """The tools, on a clock that returns the time here with its zone."""

    @tool(read_only=True, in_programs="computed")
    def calculate(program: Annotated[str, Field(max_length=2000)]) -> Spoken:
        """Compute an expression such as 12 * (3 + 4.5), or a short program whose last line is `answer = …`."""
        outcome = run_program(program, now(), {})
        if not outcome.answers:
            raise BadProgram("The program has no last line `answer = …`.")
        return Spoken(" ".join(answer(value, unit, now()) for value, unit in outcome.answers))

    @tool(read_only=True, in_programs="computed")
    def convert(amount: Number, unit: str, to: str) -> Spoken:
        """Convert an amount from one unit to another."""
        return _said(Quantity(Fraction(converted(amount, unit, to)).limit_denominator(10**9), to), now())

    @tool(read_only=True, in_programs="computed")
    def add_duration(start: str, hours: Number = 0, minutes: Number = 0, days: Number = 0) -> Spoken:
        """Tell the time or date that lies some time after another one, or before it if the numbers are negative.

        Args:
            start: "now", a time such as "3:30 pm", or a day such as "friday" or "2026-12-24".
        """
        seconds = Fraction(str(days)) * 86_400 + Fraction(str(hours)) * 3600 + Fraction(str(minutes)) * 60
        return _said(add(_moment(start, now()), Duration(seconds)), now())

    @tool(read_only=True, in_programs="computed")
    def days_between(start: str, end: str) -> Spoken:
        """Count the days from one day to another, such as "today", "june 1" or "2026-12-24"."""
        return _said(subtract(_ENGLISH.named_date(end, now()), _ENGLISH.named_date(start, now())), now())

    @tool(read_only=True, in_programs="computed")
    def get_time(place: str = "") -> Spoken:
        """Tell the time and date now, here or in another city or country."""
        moment = now().astimezone(zone_of(place)) if place.strip() else now()
        where = f" in {place.strip()}" if place.strip() else ""
        return Spoken(f"It is {spoken_time(moment)} on {spoken_date(moment)}, {moment.year}{where}.")

    return [function_tool(each) for each in (calculate, convert, add_duration, days_between, get_time)]


def _said(value: object, now: datetime) -> Spoken:
    assert isinstance(value, Quantity | Duration | Clock | date)
    return Spoken(answer(value, "", now))


def _moment(text: str, now: datetime) -> datetime | date | Clock:
    """The time or the day that a text names. Raises ValueError."""
    plain = text.strip().lower()
    if plain == "now":
        return now
    try:
        return read_clock(plain)
    except BadProgram:
        return _ENGLISH.named_date(plain, now)
