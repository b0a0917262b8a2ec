"""The time in any place."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agent.tools.function_tool import Caller
from agent.tools.world_clock import UnknownPlace, clock_tools, zone_of


@pytest.mark.parametrize(
    ("place", "zone"),
    [
        ("Tokyo", "Asia/Tokyo"), ("new york", "America/New_York"), ("San Francisco", "America/Los_Angeles"),
        ("Paris, France", "Europe/Paris"), ("Japan", "Asia/Tokyo"), ("Europe/Berlin", "Europe/Berlin"),
        ("UTC", "UTC"), ("St. Petersburg", "Europe/Moscow"), ("Pacific time", "America/Los_Angeles"),
        ("Mumbai", "Asia/Kolkata"), ("Sydney", "Australia/Sydney"), ("Kuala Lumpur", "Asia/Kuala_Lumpur"),
    ],
)  # fmt: skip
def test_places_have_time_zones(place: str, zone: str) -> None:
    assert zone_of(place).key == zone


def test_an_unknown_place_is_said_to_be_unknown() -> None:
    with pytest.raises(UnknownPlace, match="'Atlantis' is not known"):
        zone_of("Atlantis")


async def test_the_time_is_said_here_and_elsewhere() -> None:
    (get_time,) = clock_tools(lambda: datetime(2026, 11, 22, 15, 5, tzinfo=UTC))
    assert get_time.traits.read_only
    here = await get_time.run({}, Caller("me"))
    assert here.speech == "It is 3:05 PM on Sunday, November 22, 2026."
    there = await get_time.run({"place": "Tokyo"}, Caller("me", "What time is it in Tokyo?"))
    assert there.speech == "It is 12:05 AM on Monday, November 23, 2026 in Tokyo."
    for invented in ("your city", "today"):
        assert await get_time.run({"place": invented}, Caller("me", "What time is it today?")) == here


@pytest.mark.parametrize(
    ("said", "known", "answer"),
    [
        ("What time is 3:30 PM in Tokyo?", "", "3:30 PM here is 12:30 AM on Monday in Tokyo."),
        ("What time is that in Tokyo?", '{"at": "15:30"}', "3:30 PM here is 12:30 AM on Monday in Tokyo."),
        ("What time is it in Tokyo when it's noon here?", "", "Noon here is 9:00 PM in Tokyo."),
        ("It's 3 PM here, what time is that in Tokyo?", "at 7 AM", "3:00 PM here is midnight on Monday in Tokyo."),
        ("What time is it in Tokyo?", "at 7 AM", "It is 12:05 AM on Monday, November 23, 2026 in Tokyo."),
        ("Is it 6 o'clock in Tokyo?", "", "It is 12:05 AM on Monday, November 23, 2026 in Tokyo."),
    ],
)  # fmt: skip
async def test_a_time_that_the_user_names_is_converted(said: str, known: str, answer: str) -> None:
    (get_time,) = clock_tools(lambda: datetime(2026, 11, 22, 15, 5, tzinfo=UTC))
    assert (await get_time.run({"place": "Tokyo"}, Caller("me", said, known))).speech == answer


async def test_of_several_times_in_a_result_the_language_model_chooses() -> None:
    (get_time,) = clock_tools(lambda: datetime(2026, 11, 22, 15, 5, tzinfo=UTC))
    known = '{"departs": "17:45", "lands": "21:05"}'
    output = await get_time.run({"place": "Cairo"}, Caller("me", "What time is that in Cairo?", known))
    assert (output.speech, output.text) == ("", "5:45 PM here is 7:45 PM in Cairo. 9:05 PM here is 11:05 PM in Cairo.")
