"""The time zones of places."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from zoneinfo import ZoneInfo, available_timezones

_MORE_PLACES = {
    "America/New_York": "new york city|nyc|washington|washington dc|boston|philadelphia|miami|atlanta|orlando|"
    "baltimore|pittsburgh|charlotte|cleveland|eastern time|est|edt|the east coast|east coast|florida",
    "America/Chicago": "dallas|houston|austin|san antonio|minneapolis|new orleans|milwaukee|kansas city|st louis|"
    "nashville|memphis|texas|illinois|central time|cst|cdt",
    "America/Denver": "salt lake city|albuquerque|colorado|utah|mountain time|mst|mdt",
    "America/Los_Angeles": "la|san francisco|san diego|seattle|portland|las vegas|san jose|sacramento|oakland|"
    "california|silicon valley|pacific time|pst|pdt|the west coast|west coast",
    "Pacific/Honolulu": "hawaii",
    "America/Toronto": "ottawa|montreal|quebec|canada",
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
    "Pacific/Apia": "samoa",
    "America/Puerto_Rico": "puerto rico|san juan",
    "UTC": "utc|gmt|greenwich|universal time|zulu",
}  # fmt: skip
"""Places that no zone of the time zone database is named after. Of a country with several zones it is that of the
capital or of most people."""


_STATES = {
    "America/New_York": "connecticut|delaware|florida|georgia|indiana|kentucky|maine|maryland|massachusetts|michigan|"
    "new hampshire|new jersey|new york|north carolina|ohio|pennsylvania|rhode island|south carolina|tennessee|vermont|"
    "virginia|west virginia",
    "America/Chicago": "alabama|arkansas|florida|illinois|indiana|iowa|kansas|kentucky|louisiana|michigan|minnesota|"
    "mississippi|missouri|nebraska|north dakota|oklahoma|south dakota|tennessee|texas|wisconsin",
    "America/Denver": "colorado|idaho|kansas|montana|nebraska|new mexico|north dakota|oregon|south dakota|texas|utah|"
    "wyoming",
    "America/Phoenix": "arizona",
    "America/Los_Angeles": "california|idaho|nevada|oregon|washington|washington state",
    "America/Toronto": "ontario|quebec",
    "America/Winnipeg": "manitoba|ontario",
    "America/Vancouver": "british columbia",
    "America/Edmonton": "alberta",
}  # fmt: skip
"""American states and provinces, with all of their zones. They are only read after a city: "Portland, Maine"."""

_NO_PLACES = frozenset("act center central continental east factory general knox north south west".split())
_AMBIGUOUS = frozenset("chatham cordoba merida norfolk petersburg victoria".split())
"""Names of zones that mean nothing, or another place, to those who ask."""

_MORE_COUNTRIES = {
    "US": ["usa", "us", "the us", "the usa", "america", "the united states"],
    "GB": ["the uk", "great britain"],
}


@cache
def _zones() -> dict[str, str]:
    """Time zones by the plain names of places."""
    names = sorted(name for name in available_timezones() if not name.startswith(("Etc/", "Antarctica/", "GMT")))
    zones = {_plain(name.rpartition("/")[2]): name for name in names if "/" in name}
    zones |= {_plain(name): name for name in names}
    zones = {place: zone for place, zone in zones.items() if place not in _NO_PLACES | _AMBIGUOUS}
    zones |= {place: zone for zone, places in _MORE_PLACES.items() for place in places.split("|")}
    return zones


@cache
def _regions() -> dict[str, list[str]]:
    """All zones of a country or a state by its plain name, from the tables of the time zone database."""
    tables = files("tzdata.zoneinfo")
    rows = [
        [line.split("\t") for line in (tables / table).read_text("utf-8").splitlines() if not line.startswith("#")]
        for table in ("iso3166.tab", "zone.tab")
    ]
    names = {code: [_plain(name), *_MORE_COUNTRIES.get(code, [])] for code, name in rows[0]}
    regions = defaultdict[str, list[str]](list)
    for code, _, zone, *_ in rows[1]:
        for name in names[code]:
            regions[name].append(zone)
    for zone, states in _STATES.items():
        for name in states.split("|"):
            regions[name].append(zone)
    for place, zone in _zones().items():
        if place not in regions:
            regions[place] = [zone]
    return regions


def _plain(place: str) -> str:
    return " ".join(re.sub(r"[^a-z0-9+/ ]", " ", place.lower().replace("_", " ").replace(".", "")).split())


def zone_of(place: str) -> ZoneInfo:
    """The time zone of a city, a country or a zone's own name. Raises ValueError if none is known."""
    name = _plain(place)
    city, separator, region = re.sub(r",| in ", ",", place.lower()).partition(",")
    zone = _zones().get(name) or _zones().get(name.removesuffix(" time"))
    if zone is None and separator:
        zone = _zone_in(_plain(city), _plain(region))
    if zone is None:
        raise ValueError(f"The time zone of {place!r} is not known. Ask for a larger city nearby.")
    return ZoneInfo(zone)


def _zone_in(city: str, region: str) -> str | None:
    """The zone of a city of this name in a country or a state, which may be another city than the best known one: it
    has one of the region's times of now."""
    known, zones = _zones().get(city), _regions().get(region, [])
    if known is None:
        return None
    times = {_offset(zone): zone for zone in zones}
    return known if _offset(known) in times else zones[0] if len(times) == 1 else None


def _offset(zone: str) -> timedelta | None:
    return datetime.now(ZoneInfo(zone)).utcoffset()


def is_known_place(place: str) -> bool:
    """Whether the time zone of a place is known."""
    try:
        zone_of(place)
    except ValueError:
        return False
    return True
