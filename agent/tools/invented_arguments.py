"""Telephone numbers, addresses and identifiers that nobody has said: small models make one up rather than ask."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from agent.matched_text import MAX_COUNTED, MAX_HEARD, MAX_VALUE, for_patterns, words_of
from agent.words.language import language

_ENGLISH = language("en")

_FORMATS = frozenset(("email", "idn-email", "phone", "tel", "telephone"))
_NAMES = re.compile(r"(?i)(?:^|_)(?:e?mail|phone|telephone|mobile|tel|fax|id|identifier)(?:_(?:number|address))?$")
"""What a schema says of a field for such a value: its format, or else its name."""

_SAID_DIGITS = 7
"""The last digits of a number must have been said; a model may add an area code."""


def invented_argument(arguments: str, schema: Mapping[str, Any], known: str) -> str | None:
    """The first telephone number, e-mail address or identifier that is nowhere in `known`; None if there is none.

    Args:
        arguments: JSON text of an object.
        schema: of the arguments. It marks which fields hold such values.
        known: all that was said, and what tools have returned.
    """
    plain = for_patterns(known, MAX_HEARD, end=True).lower()
    digits = "".join(filter(str.isdecimal, plain)) + " " + _ENGLISH.spoken_digits(plain[-MAX_COUNTED:])
    words = "".join(filter(str.isalnum, f"{plain} {_ENGLISH.digits_for_words(plain[-MAX_COUNTED:])}"))
    for text in _marked(json.loads(arguments), schema):
        value = for_patterns(text, MAX_VALUE + 1)
        if len(value) > MAX_VALUE or not value:
            continue
        number = "".join(filter(str.isdecimal, value))
        if len(number) >= _SAID_DIGITS and not re.search(r"[a-z@]", value.lower()):
            if number[-_SAID_DIGITS:] not in digits:
                return text
        elif not all(part in words for part in words_of(value)):
            return text
    return None


def _marked(value: Any, schema: Any, name: str = "") -> Iterator[str]:
    """The texts and whole numbers in fields that are marked."""
    if not isinstance(schema, Mapping):
        return
    match value:
        case str() | int() if not isinstance(value, bool):
            if "enum" not in schema and (schema.get("format") in _FORMATS or _NAMES.search(name)):
                yield str(value)
        case dict():
            for key, part in value.items():
                yield from _marked(part, schema.get("properties", {}).get(key, {}), key)
        case list():
            for part in value:
                yield from _marked(part, schema.get("items", {}), name)
