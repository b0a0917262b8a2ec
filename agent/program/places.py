"""The time zones of places."""

from __future__ import annotations

import re
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

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
    """The time zone of a city, a country or a zone's own name. Raises ValueError if none is known."""
    name = _plain(place)
    for candidate in (name, name.partition(" in ")[2], _plain(place.partition(",")[0]), name.removesuffix(" time")):
        if candidate in _zones():
            return ZoneInfo(_zones()[candidate])
    raise ValueError(f"The time zone of {place!r} is not known. Ask for a larger city nearby.")


def is_known_place(place: str) -> bool:
    """Whether the time zone of a place is known."""
    try:
        zone_of(place)
    except ValueError:
        return False
    return True
