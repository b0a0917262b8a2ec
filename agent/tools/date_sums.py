"""Questions about the calendar, understood as a whole: the days between two dates, a date some days after another one,
leap years, and ages. English."""

from __future__ import annotations

import re
from calendar import isleap
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from agent.tools.when import MONTHS, WEEKDAYS, UnknownTime, named_day, parse_duration
from agent.tools.world_clock import spoken_date

_MONTH = rf"(?:{'|'.join(MONTHS)})"
_ANY_YEAR = r"(?:1\d|2\d) ?\d\d"
_DAY_OF_MONTH = rf"(?:(?:the )?\d{{1,2}}(?:st|nd|rd|th)?(?: of)? {_MONTH}|{_MONTH} (?:the )?\d{{1,2}}(?:st|nd|rd|th)?)"
_FEAST = r"(?:christmas(?: eve| day)?|new year ?s eve|new year(?: ?s)?(?: day)?|halloween)"
_ANY_DATE = rf"(?:{_DAY_OF_MONTH}(?: {_ANY_YEAR})?|{_FEAST}|today|tomorrow)"


_INTRODUCTION = "so|and|hey|ok|okay|please|can you|could you|tell me|do you know|calculate"
_ASKS_DAY = r"(?:what|which)(?: is| s| will be| was)?(?: the)? (?:date|day|weekday)(?: of the week)?"


def _form(pattern: str) -> re.Pattern[str]:
    """A question. Names in angle brackets stand for dates, years and months, which become groups of the match."""
    parts = {"date": _ANY_DATE, "year": _ANY_YEAR, "month": _MONTH}
    pattern = re.sub(r"<(([a-z]+)\d)>", lambda group: f"(?P<{group[1]}>{parts[group[2]]})", pattern)
    return re.compile(rf"(?:(?:{_INTRODUCTION}) )*+{pattern}(?: please)?")


UNTIL_DATE = _form(
    rf"how (?:many days|many weeks|long)(?: is it| are there| are left| left| is left| do (?:i|we) have)?"
    rf" (?:until|till|to|before) (?:the )?(?:next )?(?:<date1>|{'|'.join(WEEKDAYS)})"
)
"""A question for the days until a date or weekday."""

_BETWEEN = _form(
    r"how (?:many (?P<unit>days|weeks)|long)(?: are| is)?(?: there| it)?"
    r" (?:between|from) <date1> (?:and|to|until|till) <date2>"
)
_FROM_DATE = _form(
    rf"{_ASKS_DAY}(?: is| was| comes| falls| will it be| is it| was it| do we have)?(?: on)?"
    r" (?P<duration>(?:\d+|an?) (?:days?|weeks?)) (?P<side>after|before|from) <date1>"
)
_NEAR = _form(
    rf"{_ASKS_DAY}(?: is| was| will)?(?: it| be)*"
    r" (?P<day>(?:the )?day after tomorrow|(?:the )?day before yesterday|tomorrow|yesterday)"
)
_LEAP = _form(r"(?:is|was|will)(?: the year)? <year1>(?: be)? a leap year")
_NEXT_LEAP = _form(
    r"(?:when|what year|which year)(?: is| s| was| will be)? (?:the )?(?P<which>next|last) leap year(?: be)?"
)
_AGE = _form(
    r"[a-z ]+? born in (?:<month1> )?<year1>"
    r" (?:how old|what age) [a-z ]+? in (?:<month2> )?<year2>"
)
_YEARS = _form(
    r"how many years(?: are| is| were| lie| passed)?(?: there| it)? (?:between|from) <year1> (?:and|to|until) <year2>"
)


def date_answer(plain: str, now: datetime) -> str:
    """The answer to a question that is understood as a whole; empty if it is not.

    Args:
        plain: `plain_words` of it.
    """
    plain = " ".join(plain.replace(".", " ").split())
    forms: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], datetime], str]], ...] = (
        (_BETWEEN, _between), (_FROM_DATE, _from_date), (_LEAP, _leap), (_NEXT_LEAP, _next_leap), (_AGE, _age),
        (_YEARS, _years), (_NEAR, _near),
    )  # fmt: skip
    for form, answer in forms:
        if match := form.fullmatch(plain):
            with suppress(UnknownTime, ValueError, OverflowError):
                return answer(match, now)
    return ""


def _between(match: re.Match[str], now: datetime) -> str:
    start, end = _date(match["date1"], now), _date(match["date2"], now)
    if end < start and not re.search(rf"\b{_ANY_YEAR}$", match["date2"]):
        end = end.replace(year=start.year + 1)
    days = abs((end.date() - start.date()).days)
    if match["unit"] == "weeks":
        rest = f" and {_count(days % 7, 'day')}" if days % 7 else ""
        return f"It is {_count(days // 7, 'week')}{rest}."
    return f"It is {_count(days, 'day')}."


def _from_date(match: re.Match[str], now: datetime) -> str:
    sign = -1 if match["side"] == "before" else 1
    day = _date(match["date1"], now) + sign * parse_duration(match["duration"])
    year = f", {day.year}" if re.search(_ANY_YEAR, match["date1"]) else ""
    return f"It is {spoken_date(day)}{year}."


def _near(match: re.Match[str], now: datetime) -> str:
    days = {"day after tomorrow": 2, "day before yesterday": -2, "tomorrow": 1, "yesterday": -1}
    ahead = days[match["day"].removeprefix("the ")]
    return f"It {'is' if ahead > 0 else 'was'} {spoken_date(now + timedelta(days=ahead))}."


def _leap(match: re.Match[str], now: datetime) -> str:
    year = _year(match["year1"])
    verb = "is" if year == now.year else "was" if year < now.year else "will be"
    return f"Yes, {year} {verb} a leap year." if isleap(year) else f"No, {year} {verb} not a leap year."


def _next_leap(match: re.Match[str], now: datetime) -> str:
    step = 1 if match["which"] == "next" else -1
    year = now.year + step
    while not isleap(year):
        year += step
    return f"{'The next leap year is' if step > 0 else 'The last leap year was'} {year}."


def _age(match: re.Match[str], now: datetime) -> str:
    years = _year(match["year2"]) - _year(match["year1"])
    if match["month1"] and match["month2"]:
        born, then = MONTHS.index(match["month1"]), MONTHS.index(match["month2"])
        if born == then:
            raise ValueError("the age depends on the day")
        years -= then < born
    if years < 0:
        raise ValueError("nobody was born yet")
    return f"{_count(years, 'year')} old."


def _years(match: re.Match[str], now: datetime) -> str:
    return f"It is {_count(abs(_year(match['year2']) - _year(match['year1'])), 'year')}."


def _date(text: str, now: datetime) -> datetime:
    """The date that a text names: this year, if it names none."""
    year = re.search(rf" ({_ANY_YEAR})$", text)
    day = named_day(text[: year.start()] if year else text, now)
    if day is None:
        raise UnknownTime(text)
    fixed = re.match(_DAY_OF_MONTH, text)
    return day.replace(year=_year(year[1]) if year else now.year if fixed else day.year)


def _year(text: str) -> int:
    return int(text.replace(" ", ""))


def _count(number: int, unit: str) -> str:
    return f"{number:,} {unit}{'' if number == 1 else 's'}"
