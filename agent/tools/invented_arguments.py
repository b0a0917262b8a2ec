"""Arguments that nobody has said: small models make up a telephone number or an address rather than ask for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from agent.capture.numbers import with_digits

_EMAIL = re.compile(r"\s*[\w.+-]+@[\w-]+(?:\.[\w-]+)+\s*")
_NUMBER = re.compile(r"\s*\+?[\d\s()./-]{7,}\s*")
_DATE = re.compile(r"\s*\d{4}-\d\d-\d\d\s*|\s*\d\d?[./]\d\d?[./]\d{4}\s*")

_SAID_DIGITS = 7
"""The last digits of a number must have been said; a model may add an area code."""


def invented_argument(arguments: str, known: str) -> str | None:
    """The first e-mail address or number of seven digits or more that is nowhere in `known`; None if there is none.

    Args:
        arguments: JSON text of an object.
        known: all that was said, and what tools have returned.
    """
    plain = with_digits(known)
    digits, words = re.sub(r"\D", "", plain), re.sub(r"[\W_]", "", plain)
    for text in _texts(json.loads(arguments)):
        if _EMAIL.fullmatch(text):
            if not all(part in words for part in re.findall(r"[^\W_]+", text.lower())):
                return text
        elif _NUMBER.fullmatch(text) and not _DATE.fullmatch(text):
            number = re.sub(r"\D", "", text)
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
