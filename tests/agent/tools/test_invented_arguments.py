"""Numbers and addresses that a model makes up."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agent.tools.invented_arguments import invented_argument

EMAIL = {"type": "string", "format": "email"}
SCHEMA = {
    "type": "object",
    "properties": {
        "phone_number": {"type": "string"},
        "contact": EMAIL,
        "to": {"type": "array", "items": EMAIL},
        "person": {"type": "object", "properties": {"address": EMAIL, "email": {"type": "string"}}},
        "order_id": {"type": "integer"},
        "kind_id": {"type": "string", "enum": ["a1", "b2"]},
        "text": {"type": "string"},
        "number": {"type": "string"},
    },
}


@pytest.mark.parametrize(
    ("arguments", "known", "invented"),
    [
        ({"phone_number": "1234567890", "text": "Hi"}, "Text Marco hi.", "1234567890"),
        ({"phone_number": "555 0142 33"}, "Call 555-01-4233.", None),
        ({"phone_number": "+1 619 332 8075"}, "It's six one nine, three three two, eight oh seven five.", None),
        ({"phone_number": "112"}, "Call the police.", "112"),
        ({"contact": "m.sand@example.org"}, '{"email": "m.sand@example.org"}', None),
        ({"to": ["a@example.org", "maria@example.com"]}, "Mail a at example dot org.", "maria@example.com"),
        ({"person": {"address": "Maria.Sand@Example.com"}}, "It's maria dot sand at example dot com.", None),
        ({"person": {"email": "me@example.com"}}, "It's maria at example dot com.", "me@example.com"),
        ({"order_id": 4417}, "Where is order forty-four seventeen?", None),
        ({"order_id": 4417}, "Where is my order?", "4417"),
        ({"phone_number": "", "order_id": True, "kind_id": "a1"}, "Hello.", None),
        ({"number": "1234567890", "text": "Call 1234567890 now.", "other": "x@example.org"}, "Hello.", None),
    ],
)
def test_a_number_or_address_that_nobody_said_is_found_in_fields_for_one(
    arguments: dict[str, Any], known: str, invented: str | None
) -> None:
    assert invented_argument(json.dumps(arguments), SCHEMA, known) == invented
