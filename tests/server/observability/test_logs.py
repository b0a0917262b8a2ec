"""What is not in a log, and the form of JSON logs."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from server.observability.logs import JSONFormatter, RedactingFormatter, Redactor

KEY = "rj_Zp0xJm3bq-9sLkq2v7eYt8nWc5aHd1uRf4gXo6iTzEM"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        (f"bad key {KEY}.", KEY),
        ("secret ek_abcdefghijkl expired", "ek_abcdefghijkl"),
        (f"Authorization: Bearer {KEY}", KEY),
        ("opened /phone?token=hunter2&x=1", "hunter2"),
        ("subprotocol openai-insecure-api-key.hunter2hunter", "hunter2hunter"),
        ("subprotocol rejoinder-resume.abcDEF_123", "abcDEF_123"),
        ("the carrier token was s3cret", "s3cret"),
        ("write to jane.doe+x@mail.example.org please", "jane.doe"),
        ("the call from '+49 30 901820'", "901820"),
        ("the call from '+14155550123' begins", "14155550123"),
        ("from 415-555-0123", "555-0123"),
        ("from 004930901820", "30901820"),
        ("call 004930901820.", "30901820"),
        ("my card is 4111111111111111", "1111111"),
        ("my card is 4111111111111111.", "1111111"),
        ("my card is 6304000000000000000", "0000000"),
        ("my card is 4111 1111 1111 1111", "1111 1111"),
        ("my card is 4111-1111-1111-1111, please", "1111-1111"),
        ("my card is 3782 822463 10005", "822463"),
        ('{"card":4111111111111111}', "1111111"),
        ("the call tel:+14155550123 begins", "4155550123"),
        ("the call sip:+14155550123@pbx begins", "4155550123"),
        ("POST /phone/twilio.xml?From=%2B14155550100&To=1", "4155550100"),
        ("POST /phone/twilio.xml?From=%2b14155550100", "4155550100"),
        ("From=%2B1%20%28415%29%20555%2D0100", "0100"),
        ("caller=sip%3A%2B14155550100%40pbx", "4155550100"),
        ("caller=tel%3A004930901820%3Bx", "30901820"),
        ("next=%252B14155550100", "4155550100"),
        ("card=4111+1111+1111+1111", "1111"),
        ("card=4111%201111%201111%201111", "1111"),
        ("From=415%20555%200100", "0100"),
    ],
)
def test_secrets_numbers_and_addresses_are_hidden(text: str, hidden: str) -> None:
    assert hidden in text
    redacted = Redactor(("s3cret",))(text)
    assert hidden not in redacted
    assert "[" in redacted


@pytest.mark.parametrize(
    "text",
    [
        "turn turn_0a1b2c completed, 640 ms",
        "listening on phone.example.org:65535 and [2001:db8::1234]:8443 since 16:20:00",
        "rejected the client at 127.0.0.1:58422: the limit is 16777216 bytes",
        "2026-11-22 16:20:00,123 WARNING 1,048,576 tokens",
        "the peak is 2.8 GB of 12345678",
        "a share of 0.3333333333333333 and 1764096768.123456789",
    ],
)
def test_other_text_stays(text: str) -> None:
    assert Redactor()(text) == text


@pytest.mark.parametrize("inner", [logging.Formatter(), JSONFormatter()])
def test_a_traceback_says_where_and_what_but_quotes_no_message(inner: logging.Formatter) -> None:
    """A message of a tool, a parser or a database may hold what somebody has said."""

    said = "the note of Jane Doe"

    def fail() -> None:
        try:
            raise OSError(28, said)
        except OSError as error:
            raise ExceptionGroup(said, [KeyError(said)]) from error

    try:
        fail()
    except ExceptionGroup:
        record = logging.LogRecord("rejoinder", logging.ERROR, "", 0, "it failed", (), sys.exc_info())
    record.exc_text = "as another handler has formatted it: Jane Doe"
    text = RedactingFormatter(inner, Redactor()).format(record)
    assert "it failed" in text and "in fail" in text and "Jane" not in text
    assert "OSError 28" in text and "ExceptionGroup" in text and "KeyError" in text


def test_a_traceback_is_redacted_too() -> None:
    try:
        raise ValueError(f"no such key: {KEY}")
    except ValueError:
        record = logging.LogRecord("rejoinder", logging.ERROR, "", 0, "it failed", (), sys.exc_info())
    for inner in (logging.Formatter(), JSONFormatter()):
        text = RedactingFormatter(inner, Redactor()).format(record)
        assert "ValueError" in text and KEY not in text


def test_json_records_carry_their_fields() -> None:
    record = logging.LogRecord("rejoinder.turns", logging.INFO, "", 0, "turn %s", ("turn_1",), None)
    record.turn_id, record.latency_ms = "turn_1", 640.0
    fields = json.loads(JSONFormatter().format(record))
    assert fields["message"] == "turn turn_1"
    assert (fields["level"], fields["turn_id"], fields["latency_ms"]) == ("INFO", "turn_1", 640.0)
    assert fields["time"].endswith("+00:00")
