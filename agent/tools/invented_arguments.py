"""Arguments that nobody has said: small models make up a telephone number or an address rather than ask for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from agent.capture.numbers import with_digits
from agent.matched_text import MAX_HEARD, MAX_VALUE, for_patterns

_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_NUMBER = re.compile(r"\+?[\d ()./-]{7,}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d\d?[./]\d\d?[./]\d{4}")

_SAID_DIGITS = 7
"""The last digits of a number must have been said; a model may add an area code."""


def invented_argument(arguments: str, known: str) -> str | None:
    """The first e-mail address or number of seven digits or more that is nowhere in `known`; None if there is none.

    Args:
        arguments: JSON text of an object.
        known: all that was said, and what tools have returned.
    """
    plain = with_digits(for_patterns(known, MAX_HEARD, end=True))
    digits, words = "".join(filter(str.isdecimal, plain)), "".join(filter(str.isalnum, plain))
    for text in _texts(json.loads(arguments)):
        value = for_patterns(text, MAX_VALUE + 1)
        if len(value) > MAX_VALUE:
            continue
        if _EMAIL.fullmatch(value):
            if not all(part in words for part in re.findall(r"[^\W_]+", value.lower())):
                return text
        elif _NUMBER.fullmatch(value) and not _DATE.fullmatch(value):
            number = "".join(filter(str.isdecimal, value))
            if len(number) >= _SAID_DIGITS and number[-_SAID_DIGITS:] not in digits:
                return text
    return None


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for part in value.values():
                yield from _texts(part)
        case list():
            for part in value:
                yield from _texts(part)
