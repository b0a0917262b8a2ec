"""The weather tool, against a local server that speaks Open-Meteo's API."""

from __future__ import annotations

import logging
from datetime import date, timedelta
from typing import Any

import pytest

from agent.tools.function_tool import Caller
from agent.tools.weather import Weather, WeatherSettings
from tests.agent.tools.json_server import JsonServer, json_server

SUNDAY = date(2026, 11, 22)
OSLO = {"results": [{"id": 1, "name": "Oslo", "latitude": 59.9, "longitude": 10.7, "country": "Norway"}]}
FORECAST = {
    "latitude": 59.9,
    "current": {"time": "2026-11-22T14:00", "temperature_2m": -3.4, "weather_code": 71},
    "daily": {
        "time": [(SUNDAY + timedelta(days=n)).isoformat() for n in range(7)],
        "weather_code": [71, 61, 3, 0, 95, 999, None],
        "temperature_2m_max": [-1.2, 2.6, 3, 4, 5, 6, None],
        "temperature_2m_min": [-8.0, -0.4, 1, 1, 1, 1, None],
        "precipitation_probability_max": [80, 55, 0, None, 10, 10, 10],
    },
}
ANSWERS = {"/v1/search": OSLO, "/v1/forecast": FORECAST}


async def ask(server: JsonServer, place: str = "", day: str = "", **settings: Any) -> str:
    weather = Weather(WeatherSettings(server.url, **settings))
    try:
        output = await weather.tool().run({"place": place, "day": day}, Caller("me"))
    finally:
        await weather.close()
    assert output.speech == output.text
    return output.speech


TODAY = (
    "In Oslo it is minus 3 degrees and light snow. Today it will be between minus 8 and minus 1 degrees, "
    "and the chance of rain is 80 percent."
)
TUESDAY = "On Tuesday in Oslo: overcast, between 1 and 3 degrees."
NO_FORECAST = "I only know the weather of the next 7 days."


@pytest.mark.parametrize(
    ("day", "expected"),
    [
        ("", TODAY), ("today", TODAY), ("tonight", TODAY), ("this afternoon", TODAY),
        ("sunday", TODAY), ("on Sunday,", TODAY),
        (
            "tomorrow morning",
            "Tomorrow in Oslo: light rain, between 0 and 3 degrees, and the chance of rain is 55 percent.",
        ),
        ("Tuesday", TUESDAY), ("the day after tomorrow", TUESDAY), ("2026-11-24", TUESDAY),
        ("wednesday", "On Wednesday in Oslo: clear, between 1 and 4 degrees."),
        ("weekend", "I am sorry, there is no forecast for that day."),
        ("next week", NO_FORECAST), ("in two weeks", NO_FORECAST), ("december 24", NO_FORECAST),
        ("yesterday", NO_FORECAST), ("99999999999999 days", NO_FORECAST),
    ],
)  # fmt: skip
async def test_the_weather_of_a_day_is_said(day: str, expected: str) -> None:
    async with json_server(ANSWERS) as server:
        assert await ask(server, "Oslo", day) == expected


async def test_the_place_is_the_named_one_or_the_operators() -> None:
    async with json_server(ANSWERS) as server:
        assert await ask(server) == "For which place?"
        await ask(server, " Oslo ", home="Bergen")
        await ask(server, home="Bergen")
    names = [query["name"] for path, query in server.requests if path == "/v1/search"]
    assert names == ["Oslo", "Bergen"]
    assert {path: query["latitude"] for path, query in server.requests if path == "/v1/forecast"} == {
        "/v1/forecast": "59.9"
    }


async def test_units_may_be_imperial() -> None:
    async with json_server(ANSWERS) as server:
        await ask(server, "Oslo", units="imperial")
        assert server.requests[-1][1]["temperature_unit"] == "fahrenheit"


def test_the_public_service_has_its_places_elsewhere() -> None:
    assert WeatherSettings("https://api.open-meteo.com").geocoding_url == "https://geocoding-api.open-meteo.com"
    assert WeatherSettings("https://weather.lan").geocoding_url == "https://weather.lan"
    assert WeatherSettings("https://weather.lan", "https://places.lan").geocoding_url == "https://places.lan"


async def test_a_place_that_nobody_knows_is_said_to_be_unknown() -> None:
    async with json_server({"/v1/search": {"generationtime_ms": 0.1}}) as server:
        assert await ask(server, "Atlantis") == "I don't know where Atlantis is."


async def test_names_from_elsewhere_are_words_only() -> None:
    place = {**OSLO["results"][0], "name": "Oslo. <b>Ignore</b> {all} " + "x" * 100}
    async with json_server({**ANSWERS, "/v1/search": {"results": [place]}}) as server:
        said = await ask(server, "Oslo")
    assert said.startswith("In Oslo. bIgnoreb all xxx") and len(said) < 200


@pytest.mark.parametrize(
    "answers",
    [
        {"/v1/search": (500, {})},
        {"/v1/search": (400, {"error": True, "reason": "Parameter name must be set"})},
        {"/v1/search": {"results": [{"name": "Oslo"}]}},
        {"/v1/search": b"<html>"},
        {"/v1/search": b"[1]"},
        {"/v1/search": b"x" * (2 << 20)},
        {"/v1/search": OSLO, "/v1/forecast": {"current": {}, "daily": {}}},
    ],
)
async def test_a_service_that_fails_is_reported_in_one_sentence(
    answers: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with json_server(answers) as server:
        weather = Weather(WeatherSettings(server.url))
        with caplog.at_level(logging.WARNING, "rejoinder"):
            output = await weather.tool().run({"place": "Oslo"}, Caller("me"))
        await weather.close()
    assert (output.speech, output.failed) == ("I am sorry, the weather service does not answer right now.", True)
    assert "the weather service at http://127.0.0.1" in caplog.text


async def test_a_service_that_hangs_is_reported_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.tools.web_service.REQUEST_TIMEOUT_S", 0.1)
    async with json_server({"/v1/search": None}) as server:
        assert await ask(server, "Oslo") == "I am sorry, the weather service is too slow right now."


def test_the_name_of_a_place_leaves_the_machine_only_when_the_turn_is_over() -> None:
    assert not Weather(WeatherSettings("http://127.0.0.1:9")).tool().traits.read_only
