"""Values as they are said."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

import pytest

from agent.program.speech import answer, spoken_clock, spoken_date, spoken_duration, spoken_number
from agent.program.values import BadProgram, Clock, Duration, Quantity, Value

NOW = datetime(2026, 11, 22, 15, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "unit", "spoken"),
    [
        (True, "", "Yes."),
        (False, "", "No."),
        ("It's a Friday", "", "It's a Friday."),
        (Clock(540), "", "It's 9:00 AM."),
        (Clock(60, days=1), "", "It's 1:00 AM on the next day."),
        (Clock(60, days=-3), "", "It's 1:00 AM 3 days before."),
        (NOW, "", "It's 3:00 PM."),
        (NOW + timedelta(days=1), "", "It's 3:00 PM on Monday, November 23."),
        (date(2027, 1, 1), "", "It's Friday, January 1, 2027."),
        (Duration(Fraction(5400)), "", "That's 1 hour and 30 minutes."),
        (Quantity(Fraction(3, 2), "mile"), "", "That's 1.5 miles."),
        (Quantity(Fraction(1), "mile"), "", "That's 1 mile."),
        (Quantity(Fraction(5280), "feet"), "", "That's 5,280 feet."),
        (Quantity(Fraction(1), "inches"), "", "That's 1 inch."),
        (Quantity(Fraction(2), "kg"), "", "That's 2 kilograms."),
        (Quantity(Fraction(3), "mph"), "", "That's 3 miles per hour."),
        (Quantity(Fraction(1), "celsius"), "", "That's 1 degree Celsius."),
        (Quantity(Fraction(300), "kelvin"), "", "That's 300 kelvin."),
        (Quantity(Fraction(2), "kilocalories"), "", "That's 2 kilocalories."),
        (Fraction(5, 2), "dollars", "That's 2.50 dollars."),
        (Fraction(40), "dollars", "That's 40 dollars."),
        (Fraction(7), "eggs", "That's 7 eggs."),
        (Fraction(1), "eggs", "That's 1 egg."),
        (Fraction(1), "children left", "That's 1 child left."),
        (Fraction(1), "houses", "That's 1 house."),
        (Fraction(1), "berries", "That's 1 berry."),
        (Fraction(1), "boxes", "That's 1 box."),
        (Fraction(1), "potatoes", "That's 1 potato."),
        (Fraction(1), "glass", "That's 1 glass."),
        (Fraction(1), "dollars", "That's 1 dollar."),
        (Fraction(1, 3), "", "That's about 0.3333."),
        (Fraction("1.001"), "meters", "That's 1.001 meters."),
        (Quantity(Fraction("1.001"), "meter"), "", "That's 1.001 meters."),
        (Quantity(Fraction("1.00001"), "meter"), "", "That's about 1 meter."),
        (Fraction("0.001"), "dollars", "That's 0.001 dollars."),
        (Fraction("0.999"), "dollars", "That's about 1 dollar."),
        (Fraction("16.632"), "dollars", "That's about 16.63 dollars."),
        (Fraction(10, 3), "dollars", "That's about 3.33 dollars."),
        (Fraction(1, 3), "dollars", "That's about 0.33 dollars."),
        (Fraction("0.29999"), "dollars", "That's about 0.30 dollars."),
        (Fraction("-5.5"), "dollars", "That's minus 5.50 dollars."),
        (Fraction(-1), "dollars", "That's minus 1 dollar."),
        (Duration(), "", "That's no time at all."),
    ],
)
def test_a_result_is_a_sentence(value: Value, unit: str, spoken: str) -> None:
    assert answer(value, unit, NOW) == spoken


@pytest.mark.parametrize(
    ("value", "spoken"),
    [
        ("0", "0"), ("-1", "minus 1"), ("1234567", "1,234,567"), ("0.5", "0.5"), ("2.675", "2.675"),
        ("1.125", "1.125"), ("2000.002", "2,000.002"), ("99.996", "99.996"), ("1.00001", "about 1"),
        ("2.12345", "about 2.12"), ("-8.04672", "about minus 8.05"), ("0.125005", "about 0.125"),
        ("0.000123445", "about 0.0001234"), ("0.001234", "0.001234"), ("1e-5", "1 times ten to the power of -5"),
        ("1e15", "1 times ten to the power of 15"),
        ("-12345678901234567", "about minus 1.235 times ten to the power of 16"),
    ],
)  # fmt: skip
def test_a_number_has_few_digits_and_is_said_to_be_rounded(value: str, spoken: str) -> None:
    assert spoken_number(Fraction(value)) == spoken


@pytest.mark.parametrize(
    ("duration", "spoken"),
    [
        (timedelta(seconds=1), "1 second"), (timedelta(seconds=3661), "1 hour and 1 minute"),
        (timedelta(days=400), "400 days"), (timedelta(0), "less than a second"),
        (Duration(months=14), "1 year and 2 months"), (Duration(Fraction(86_400), 1), "1 month and 1 day"),
        (Duration(Fraction(-3600)), "1 hour"),
    ],
)  # fmt: skip
def test_a_duration_has_its_two_largest_units(duration: Duration | timedelta, spoken: str) -> None:
    assert spoken_duration(duration) == spoken


def test_a_duration_that_nobody_lives_is_refused() -> None:
    with pytest.raises(BadProgram):
        spoken_duration(Duration(Fraction(10**13)))


def test_times_and_dates_leave_out_what_is_not_certain_or_clear() -> None:
    clocks = (Clock(0), Clock(720), Clock(720, certain=False), Clock(400), Clock(400, certain=False), Clock(1439))
    assert [spoken_clock(clock) for clock in clocks] == ["midnight", "noon", "12:00", "6:40 AM", "6:40", "11:59 PM"]
    assert spoken_date(date(2026, 1, 1), NOW) == "Thursday, January 1"
    assert spoken_date(date(2027, 1, 1), NOW) == "Friday, January 1, 2027"
