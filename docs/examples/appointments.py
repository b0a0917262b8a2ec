"""An appointment line for the telephone: asks for a name, a number, a day and a time, and books into SQLite.

    rejoinder serve --greeting "" --tools docs/examples/appointments.py

The file APPOINTMENTS (default: appointments.db) holds the bookings. A time is never booked twice.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from datetime import date, datetime, time, timedelta

from agent.capture import Date, Form, PhoneNumber, SpelledName, Time
from agent.tools import Dialogue, NotCaptured, Spoken, tool
from agent.words.language import language

_ENGLISH = language("en")

_OPENS, _CLOSES, _LENGTH = time(9), time(17), timedelta(minutes=30)

_WELCOME = "Welcome to the appointment line of the dental practice. "


@tool(opens_calls=True)
async def book_appointment(dialogue: Dialogue) -> Spoken:
    """Book an appointment with the dentist. Call this when the user wants one."""
    try:
        person = await dialogue.fill_in(
            Form(
                name=SpelledName(prompt=f"{_WELCOME}What is your last name? Please spell it."),
                phone=PhoneNumber(prompt="And your phone number?"),
            )
        )
        prompt = "For which day would you like an appointment?"
        while True:
            wish = await dialogue.fill_in(
                Form(
                    day=Date(prompt=prompt, check=_closed),
                    at=Time(prompt="At what time?", earliest=_OPENS, latest=_last(), check=_between_slots),
                    closing="Let me see.",
                )
            )
            day, at = wish["day"], wish["at"]
            if await asyncio.to_thread(_book, day, at, person["name"], person["phone"]):
                booked = f"Your appointment is on {_ENGLISH.say_date(day)}, at {_ENGLISH.say_time(at)}."
                return Spoken(f"{booked} Thank you for calling.")
            free = await asyncio.to_thread(_free, day)
            others = f"On that day, {' and '.join(map(_ENGLISH.say_time, free[:3]))} are free. " if free else ""
            prompt = f"Sorry, {_ENGLISH.say_time(at)} is taken. {others}For which day shall I look?"
    except NotCaptured:
        return Spoken("I have booked nothing. You can also write to the practice. Goodbye.")


def _closed(day: date) -> str:
    return "We are closed at weekends." if day.weekday() >= 5 else ""


def _between_slots(at: time) -> str:
    return "Appointments begin at the full hour and at half past." if at.minute % 30 else ""


def _last() -> time:
    return (datetime.combine(date.min, _CLOSES) - _LENGTH).time()


def _database() -> sqlite3.Connection:
    connection = sqlite3.connect(os.environ.get("APPOINTMENTS", "appointments.db"))
    connection.execute(
        "create table if not exists appointments (day text, at text, name text, phone text, primary key (day, at))"
    )
    return connection


def _book(day: date, at: time, name: str, phone: str) -> bool:
    """Book a time; False if it is taken. The primary key keeps two calls from taking the same one."""
    row = (day.isoformat(), f"{at:%H:%M}", name, phone)
    try:
        with closing(_database()) as connection, connection:
            connection.execute("insert into appointments values (?, ?, ?, ?)", row)
    except sqlite3.IntegrityError:
        return False
    return True


def _free(day: date) -> list[time]:
    """The times of a day that nobody has booked."""
    with closing(_database()) as connection:
        taken = {at for (at,) in connection.execute("select at from appointments where day = ?", (day.isoformat(),))}
    start, times = datetime.combine(day, _OPENS), []
    while start.time() <= _last():
        times.append(start.time())
        start += _LENGTH
    return [at for at in times if f"{at:%H:%M}" not in taken]
