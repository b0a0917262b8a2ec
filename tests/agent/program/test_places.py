"""The time zones of places."""

from __future__ import annotations

import pytest

from agent.program.places import is_known_place, zone_of


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
    assert is_known_place(place)
    assert zone_of(place).key == zone


@pytest.mark.parametrize("place", ["Atlantis", "", "your city", "../../etc/passwd"])
def test_an_unknown_place_is_said_to_be_unknown(place: str) -> None:
    assert not is_known_place(place)
    with pytest.raises(ValueError, match="is not known"):
        zone_of(place)
