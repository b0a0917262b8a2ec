"""Numbers and addresses that a model makes up."""

from __future__ import annotations

import json

import pytest

from agent.tools.invented_arguments import invented_argument


@pytest.mark.parametrize(
    ("arguments", "known", "invented"),
    [
        ({"number": "1234567890", "text": "Hi"}, "Text Marco hi.", "1234567890"),
        ({"number": "555 0142 33"}, "Call 555-01-4233.", None),
        ({"number": "+1 619 332 8075"}, "My number is six one nine, three three two, eight oh seven five.", None),
        ({"to": ["a@example.org", "maria@example.com"]}, "Mail a at example dot org.", "maria@example.com"),
        ({"to": "m.sand@example.org"}, '{"email": "m.sand@example.org"}', None),
        ({"to": {"address": "Maria.Sand@Example.com"}}, "It's maria dot sand at example dot com.", None),
        ({"day": "2026-11-24", "other": "24.11.2026", "count": 12345678}, "Tomorrow.", None),
        ({"order": "4417", "text": "Call 1234567890 now."}, "Hello.", None),
    ],
)
def test_a_number_or_address_that_nobody_said_is_found(
    arguments: dict[str, object], known: str, invented: str | None
) -> None:
    assert invented_argument(json.dumps(arguments), known) == invented
