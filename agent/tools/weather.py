"""The tool for the weather, now and for a week, from a server with Open-Meteo's API. People can host one themselves.

Source: Open-Meteo's documentation of `/v1/forecast` and of the geocoding API's `/v1/search`; the codes of the weather
are those of the World Meteorological Organization (WMO 4677).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time
from typing import Literal

from pydantic import BaseModel

from agent.tools.function_tool import ServerTool, Spoken, function_tool, tool
from agent.tools.web_service import ServiceFailed, WebService, saying_failures
from agent.words.language import language

_ENGLISH = language("en")

_OPEN_METEO, _OPEN_METEO_PLACES = "https://api.open-meteo.com", "https://geocoding-api.open-meteo.com"

_FORECAST_DAYS = 7

_CONDITIONS = {
    0: "clear", 1: "mostly clear", 2: "partly cloudy", 3: "overcast", 45: "fog", 48: "freezing fog",
    51: "light drizzle", 53: "drizzle", 55: "heavy drizzle", 56: "freezing drizzle", 57: "freezing drizzle",
    61: "light rain", 63: "rain", 65: "heavy rain", 66: "freezing rain", 67: "freezing rain",
    71: "light snow", 73: "snow", 75: "heavy snow", 77: "snow grains", 80: "light showers", 81: "showers",
    82: "violent showers", 85: "snow showers", 86: "heavy snow showers", 95: "thunderstorms",
    96: "thunderstorms with hail", 99: "thunderstorms with hail",
}  # fmt: skip


@dataclass(frozen=True)
class WeatherSettings:
    """Where the weather comes from.

    Attributes:
        url: a server with Open-Meteo's forecast API.
        places_url: one with its geocoding API; empty for Open-Meteo's own if `url` is theirs, otherwise that server.
        home: the place that is meant if the user names none; empty to ask.
    """

    url: str
    places_url: str = ""
    home: str = ""
    units: Literal["metric", "imperial"] = "metric"

    @property
    def geocoding_url(self) -> str:
        """The server that knows places."""
        return self.places_url or (_OPEN_METEO_PLACES if self.url.rstrip("/") == _OPEN_METEO else self.url)


class _Place(BaseModel):
    name: str
    latitude: float
    longitude: float


class _Places(BaseModel):
    results: list[_Place] = []


class _Current(BaseModel):
    temperature_2m: float
    weather_code: int


class _Daily(BaseModel):
    time: list[date]
    weather_code: list[int | None]
    temperature_2m_max: list[float | None]
    temperature_2m_min: list[float | None]
    precipitation_probability_max: list[float | None] = []


class _Forecast(BaseModel):
    current: _Current
    daily: _Daily


class Weather:
    """The weather from one server."""

    def __init__(self, settings: WeatherSettings) -> None:
        self._settings = settings
        self._forecasts = WebService("the weather service", settings.url)
        self._places = WebService("the weather service", settings.geocoding_url)

    def tool(self) -> ServerTool:
        """The tool. It is not declared read-only: the name of the place leaves the machine, and that only happens once
        the turn is over."""

        @tool(holding_phrase="Let me check the weather.", timeout_s=12, in_programs="called", outgoing=("place",))
        async def get_weather(place: str = "", day: str = "") -> Spoken:
            """Tell the weather now, or the forecast of a day, in a city."""
            return Spoken(await self.report(place.strip() or self._settings.home, day))

        return saying_failures(function_tool(get_weather))

    async def report(self, name: str, day_text: str = "") -> str:
        """The weather of a place, today or on another day, as a sentence. Raises ServiceFailed."""
        if not name:
            return "For which place?"
        places = await self._places.get("/v1/search", {"name": name, "count": 1, "language": "en"}, _Places)
        if not places.results:
            return f"I don't know where {name} is."
        place = places.results[0]
        forecast = await self._forecasts.get("/v1/forecast", self._question(place), _Forecast)
        day = _day(day_text, forecast.daily.time)
        if day is None:
            return f"I only know the weather of the next {_FORECAST_DAYS} days."
        return _sentence(_brief(place.name), forecast, day)

    def _question(self, place: _Place) -> dict[str, str | int | float]:
        units = {"temperature_unit": "fahrenheit"} if self._settings.units == "imperial" else {}
        return {
            "latitude": place.latitude,
            "longitude": place.longitude,
            "current": "temperature_2m,weather_code",
            "daily": "weather_code,temperature_2m_max,temperature_2m_min,precipitation_probability_max",
            "timezone": "auto",
            "forecast_days": _FORECAST_DAYS,
            **units,
        }

    async def close(self) -> None:
        """Close the connections."""
        await self._forecasts.close()
        await self._places.close()


def _day(text: str, days: list[date]) -> int | None:
    """Which of the days a text names, today if none; None for one that is not among them."""
    plain = text.strip(" ,").lower()
    for before in ("on ", "this "):
        plain = plain.removeprefix(before)
    for part in (" morning", " afternoon", " evening", " night"):
        plain = plain.removesuffix(part)
    plain = plain.replace("weekend", "saturday")
    if plain in ("", "now", "today", "tonight", "morning", "afternoon", "evening", "night", "week"):
        return 0
    try:
        found = _ENGLISH.named_date(plain, datetime.combine(days[0], time()))
    except ValueError:
        return None
    if plain in _ENGLISH.WEEKDAYS and days[0].weekday() == found.weekday():
        return 0
    return days.index(found) if found in days else None


def _sentence(place: str, forecast: _Forecast, day: int) -> str:
    daily = forecast.daily
    days = list(zip(daily.weather_code, daily.temperature_2m_max, daily.temperature_2m_min, strict=False))
    code, high, low = days[day] if day < len(days) else (None, None, None)
    chances = daily.precipitation_probability_max
    chance = chances[day] if day < len(chances) else None
    rain = f", and the chance of rain is {round(chance)} percent" if chance else ""
    if high is None or low is None:
        raise ServiceFailed("I am sorry, there is no forecast for that day.")
    extremes = f"between {_degrees(low)} and {_degrees(high)} degrees{rain}"
    if day == 0:
        current = forecast.current
        now = f"In {place} it is {_degrees(current.temperature_2m)} degrees and {_condition(current.weather_code)}"
        return f"{now}. Today it will be {extremes}."
    when = "Tomorrow" if day == 1 else f"On {daily.time[day]:%A}"
    return f"{when} in {place}: {_condition(code)}, {extremes}."


def _condition(code: int | None) -> str:
    return _CONDITIONS.get(code if code is not None else -1, "changeable")


def _degrees(value: float) -> str:
    """A temperature as people say it."""
    return f"minus {-round(value)}" if round(value) < 0 else str(round(value))


def _brief(name: str) -> str:
    """A name from elsewhere that is said: words only, and not many."""
    return re.sub(r"[^\w '’.-]", "", name)[:60]
