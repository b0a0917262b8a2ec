"""The built-in tool for the time and the date, here and elsewhere, and for what a time here is elsewhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from agent.tools.function_tool import Caller, ServerTool, Spoken, function_tool, tool
from agent.tools.when import UnknownTime, clock_times, named_day, plain_words

_MORE_PLACES = {
    "America/New_York": "new york city|nyc|washington|washington dc|boston|philadelphia|miami|atlanta|orlando|"
    "baltimore|pittsburgh|charlotte|cleveland|eastern time|est|edt|the east coast|east coast|florida|georgia",
    "America/Chicago": "dallas|houston|austin|san antonio|minneapolis|new orleans|milwaukee|kansas city|st louis|"
    "nashville|memphis|texas|illinois|central time|cst|cdt",
    "America/Denver": "salt lake city|albuquerque|colorado|utah|mountain time|mst|mdt",
    "America/Los_Angeles": "la|san francisco|san diego|seattle|portland|las vegas|san jose|sacramento|oakland|"
    "california|silicon valley|pacific time|pst|pdt|the west coast|west coast",
    "Pacific/Honolulu": "hawaii",
    "America/Toronto": "ottawa|montreal|quebec|canada",
    "America/Vancouver": "victoria",
    "America/Edmonton": "calgary",
    "America/Sao_Paulo": "rio|rio de janeiro|brasilia|brazil",
    "America/Argentina/Buenos_Aires": "argentina",
    "America/Mexico_City": "mexico",
    "Europe/London": "uk|united kingdom|great britain|britain|england|scotland|wales|edinburgh|glasgow|manchester|"
    "liverpool|birmingham|cardiff|oxford|cambridge",
    "Europe/Dublin": "ireland|cork|galway",
    "Europe/Berlin": "germany|munich|hamburg|cologne|frankfurt|stuttgart|dusseldorf|leipzig|dresden",
    "Europe/Paris": "france|lyon|marseille|nice|toulouse|bordeaux|strasbourg",
    "Europe/Madrid": "spain|barcelona|valencia|seville|malaga",
    "Europe/Rome": "italy|milan|naples|venice|florence|turin|bologna",
    "Europe/Zurich": "switzerland|geneva|basel|bern",
    "Europe/Vienna": "austria|salzburg|graz",
    "Europe/Amsterdam": "netherlands|the netherlands|holland|rotterdam|the hague",
    "Europe/Brussels": "belgium|antwerp",
    "Europe/Warsaw": "poland|krakow",
    "Europe/Prague": "czech republic|czechia",
    "Europe/Moscow": "russia|saint petersburg|st petersburg",
    "Europe/Kyiv": "ukraine|kiev",
    "Europe/Istanbul": "turkey|ankara",
    "Europe/Lisbon": "portugal|porto",
    "Europe/Athens": "greece",
    "Europe/Stockholm": "sweden|gothenburg",
    "Europe/Oslo": "norway|bergen",
    "Europe/Copenhagen": "denmark",
    "Europe/Helsinki": "finland",
    "Asia/Tokyo": "japan|osaka|kyoto|yokohama|sapporo|nagoya|fukuoka",
    "Asia/Seoul": "south korea|korea|busan",
    "Asia/Shanghai": "china|beijing|shenzhen|guangzhou|chengdu|wuhan",
    "Asia/Kolkata": "india|mumbai|bombay|delhi|new delhi|bangalore|bengaluru|chennai|hyderabad|calcutta|pune",
    "Asia/Dubai": "united arab emirates|abu dhabi|uae",
    "Asia/Riyadh": "saudi arabia|mecca|jeddah",
    "Asia/Jerusalem": "israel|tel aviv",
    "Asia/Karachi": "pakistan|lahore|islamabad",
    "Asia/Bangkok": "thailand",
    "Asia/Ho_Chi_Minh": "vietnam|hanoi|saigon",
    "Asia/Jakarta": "indonesia",
    "Asia/Manila": "the philippines|philippines",
    "Asia/Kuala_Lumpur": "malaysia",
    "Africa/Cairo": "egypt|alexandria",
    "Africa/Johannesburg": "south africa|cape town|pretoria|durban",
    "Africa/Lagos": "nigeria|abuja",
    "Africa/Nairobi": "kenya",
    "Africa/Casablanca": "morocco|rabat|marrakesh",
    "Australia/Sydney": "australia|canberra",
    "Pacific/Auckland": "new zealand|wellington",
    "UTC": "utc|gmt|greenwich|universal time|zulu",
}  # fmt: skip
"""Places that no zone of the time zone database is named after. Of a country with several zones it is that of the
capital or of most people."""


_ABOUT_TIME = (
    r"^(?!.*\bwhat time (do|does|did|should|will|can|would|was|were)\b)"
    r"(?!.*\b(date|day|year|month) (is|was|will|does|did) (?!it\b|today\b|now\b|this\b|the (time|date|day)\b))"
    r".*(\b(what|what's|which|tell|know|current|check)\b.*\b(time|date|day|weekday|year|month)\b|"
    r"\bo'clock\b|\bclock\b|\b(time|date) (is it|in|now)\b|\bhow late\b|"
    r"\bis it\b.*\b(morning|evening|afternoon|night|midnight|noon|late|early|day|weekend|"
    r"monday|tuesday|wednesday|thursday|friday|saturday|sunday)\b)"
)
"""What people say who ask for the time or the date."""


_HERE = r"(right |the )?(now|today|here|time|date|day|current|currently|local)( time| date)?"
"""What small models write for the place if the user named none."""


_ABOUT_ANOTHER_TIME = (
    r"\bwhat time (?:(?:is|would|will) )?(?:that|this|\d|noon|midnight)|"
    r"\bwhat (?:is |s )?(?:that|this|\d+(?: |:\d\d)|noon|midnight)|\bwhen it (?:is|s)\b"
)
"""In plain words, what people say who ask for another time than now: "what time is that", "when it is noon here"."""

_LAST_AFTERNOON_HOUR = 6
"""Until this hour a time without a half of the day is one of the afternoon."""


class UnknownPlace(ValueError):
    """No time zone is known for this place."""


@cache
def _zones() -> dict[str, str]:
    """Time zones by the plain names of places."""
    zones = {_plain(name.rpartition("/")[2]): name for name in sorted(available_timezones()) if "/" in name}
    zones |= {_plain(name): name for name in available_timezones()}
    zones |= {place: zone for zone, places in _MORE_PLACES.items() for place in places.split("|")}
    return zones


def _plain(place: str) -> str:
    return " ".join(re.sub(r"[^a-z0-9+/ ]", " ", place.lower().replace("_", " ").replace(".", "")).split())


def zone_of(place: str) -> ZoneInfo:
    """The time zone of a city, a country or a zone's own name. Raises UnknownPlace."""
    name = _plain(place)
    for candidate in (name, name.partition(" in ")[2], _plain(place.partition(",")[0]), name.removesuffix(" time")):
        if candidate in _zones():
            return ZoneInfo(_zones()[candidate])
    raise UnknownPlace(f"The time zone of {place!r} is not known. Ask for a larger city nearby.")


def spoken_time(moment: datetime) -> str:
    """A time as people say it, such as "3:05 PM"."""
    if (moment.hour, moment.minute) in ((0, 0), (12, 0)):
        return "noon" if moment.hour else "midnight"
    return f"{moment.hour % 12 or 12}:{moment.minute:02} {'PM' if moment.hour >= 12 else 'AM'}"


def spoken_date(moment: datetime) -> str:
    """A date as people say it, such as "Sunday, November 22"."""
    return f"{moment:%A, %B} {moment.day}"


def other_times(said: str, known: str, now: datetime) -> list[datetime]:
    """The times here that the user may want to know elsewhere; none if they ask for the time now.

    Args:
        known: what "that" in the user's words may stand for.
    """
    plain = plain_words(said)
    if not re.search(_ABOUT_ANOTHER_TIME, plain):
        return []
    plain = plain if clock_times(plain) else plain_words(known)
    day, times = now, []
    with suppress(UnknownTime):
        day = named_day(plain, now) or now
    for hour, minute, certain in dict.fromkeys(clock_times(plain)):
        hour += 12 if not certain and 1 <= hour <= _LAST_AFTERNOON_HOUR else 0
        times.append(day.replace(hour=hour, minute=minute, second=0, microsecond=0))
    return times


def _converted(here: datetime, there: datetime, where: str) -> str:
    day = "" if there.date() == here.date() else f" on {there:%A}"
    sentence = f"{spoken_time(here)} here is {spoken_time(there)}{day}{where}."
    return sentence[0].upper() + sentence[1:]


def clock_tools(now: Callable[[], datetime]) -> list[ServerTool]:
    """The tool, on a clock that returns the time here with its zone."""

    @tool(read_only=True, said=_ABOUT_TIME)
    def get_time(caller: Caller, place: str = "") -> Spoken | str:
        """Tell the time and date, here or in another city or country."""
        place = caller.named(place)
        if place and not re.fullmatch(_HERE, place, re.IGNORECASE):
            try:
                zone, where = zone_of(place), f" in {place}"
            except UnknownPlace:
                return Spoken(f"I don't know the time zone of {place}.")
            if times := other_times(caller.said, caller.known, now()):
                converted = " ".join(_converted(time, time.astimezone(zone), where) for time in times)
                return Spoken(converted) if len(times) == 1 else converted  # the language model knows which is meant
            moment = now().astimezone(zone)
        else:
            moment, where = now(), ""
        return Spoken(f"It is {spoken_time(moment)} on {spoken_date(moment)}, {moment.year}{where}.")

    return [function_tool(get_time)]
