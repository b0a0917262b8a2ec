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
        ("Samoa", "Pacific/Apia"), ("San Juan", "America/Puerto_Rico"), ("Portland, Maine", "America/New_York"),
        ("Portland, Oregon", "America/Los_Angeles"), ("Birmingham, Alabama", "America/Chicago"),
        ("Birmingham in England", "Europe/London"), ("Valencia, Venezuela", "America/Caracas"),
        ("Valencia, Spain", "Europe/Madrid"), ("Perth, Australia", "Australia/Perth"), ("Lima, Peru", "America/Lima"),
        ("Chicago, USA", "America/Chicago"), ("Seattle, Washington", "America/Los_Angeles"),
        ("Atlanta, Georgia", "America/New_York"), ("Tbilisi, Georgia", "Asia/Tbilisi"),
        ("Mumbai", "Asia/Kolkata"), ("Sydney", "Australia/Sydney"), ("Kuala Lumpur", "Asia/Kuala_Lumpur"),
    ],
)  # fmt: skip
def test_places_have_time_zones(place: str, zone: str) -> None:
    assert is_known_place(place)
    assert zone_of(place).key == zone


@pytest.mark.parametrize(
    "place",
    [
        "Atlantis", "", "your city", "../../etc/passwd", "Paris, Texas", "London, Ontario", "London, Canada",
        "Moscow, Idaho", "Melbourne, Florida", "Athens, Georgia", "Georgia", "Portland, ME", "Paris, please", "GMT+5",
        "Etc/GMT+5", "general", "in general", "center", "Davis", "Norfolk", "Cordoba", "Springfield, Illinois",
    ],
)  # fmt: skip
def test_an_unknown_place_is_said_to_be_unknown(place: str) -> None:
    assert not is_known_place(place)
    with pytest.raises(ValueError, match="is not known"):
        zone_of(place)
