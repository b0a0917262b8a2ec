"""What may be added, subtracted, multiplied and divided, and what may not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest

from agent.program import values
from agent.program.values import (
    BadProgram,
    Clock,
    Duration,
    Quantity,
    Value,
    YearlessDay,
    add,
    divide,
    multiply,
    negated,
    rounded,
    subtract,
)

HOUR, DAY, MONTH = Duration(Fraction(3600)), Duration(Fraction(86_400)), Duration(months=1)
NOON, NINE_PM, FIVE = Clock(720), Clock(21 * 60), Clock(300, certain=False)
MOMENT, SUNDAY = datetime(2026, 11, 22, 15, 0, tzinfo=UTC), date(2026, 11, 22)
ONE, TWO = Fraction(1), Fraction(2)
MILE = Quantity(ONE, "mile")
BERLIN, EIGHT_HOURS = ZoneInfo("Europe/Berlin"), Duration(Fraction(8 * 3600))
SPRING, AUTUMN = datetime(2026, 3, 28, 22, 0, tzinfo=BERLIN), datetime(2026, 10, 24, 22, 0, tzinfo=BERLIN)
"""Before a night in which the clocks are changed."""


@pytest.mark.parametrize(
    ("operation", "left", "right", "result"),
    [
        (add, ONE, TWO, Fraction(3)),
        (add, HOUR, NOON, Clock(780)),
        (add, NINE_PM, Duration(Fraction(4 * 3600)), Clock(60, days=1)),
        (add, MILE, MILE, Quantity(TWO, "mile")),
        (add, MOMENT, HOUR, datetime(2026, 11, 22, 16, 0, tzinfo=UTC)),
        (add, SUNDAY, HOUR, datetime(2026, 11, 22, 1, 0)),
        (add, date(2026, 1, 31), MONTH, date(2026, 2, 28)),
        (subtract, date(2026, 3, 31), MONTH, date(2026, 2, 28)),
        (subtract, NOON, HOUR, Clock(660)),
        (subtract, NOON, NINE_PM, Duration(Fraction(15 * 3600))),
        (subtract, FIVE, NINE_PM, Duration(Fraction(8 * 3600))),
        (subtract, NINE_PM, MOMENT, Duration(Fraction(6 * 3600))),
        (subtract, date(2026, 12, 1), SUNDAY, Duration(Fraction(9 * 86_400))),
        (subtract, SUNDAY, date(2026, 12, 1), Duration(Fraction(-9 * 86_400))),
        (subtract, YearlessDay(2026, 11, 21), SUNDAY, Duration(Fraction(364 * 86_400))),
        (subtract, SUNDAY, YearlessDay(2026, 11, 23), Duration(Fraction(364 * 86_400))),
        (subtract, YearlessDay(2024, 2, 29), date(2025, 3, 1), Duration(Fraction(1095 * 86_400))),
        (subtract, YearlessDay(2024, 2, 29), datetime(2025, 3, 1, tzinfo=UTC), Duration(Fraction(1095 * 86_400))),
        (subtract, date(2026, 2, 1), YearlessDay(2028, 2, 29), Duration(Fraction(703 * 86_400))),
        (subtract, datetime(2026, 2, 1, tzinfo=UTC), YearlessDay(2028, 2, 29), Duration(Fraction(703 * 86_400))),
        (add, SPRING, EIGHT_HOURS, datetime(2026, 3, 29, 7, 0, tzinfo=BERLIN)),
        (add, SPRING, DAY, datetime(2026, 3, 29, 22, 0, tzinfo=BERLIN)),
        (add, AUTUMN, EIGHT_HOURS, datetime(2026, 10, 25, 5, 0, tzinfo=BERLIN)),
        (subtract, datetime(2026, 3, 29, 7, 0, tzinfo=BERLIN), EIGHT_HOURS, SPRING),
        (subtract, datetime(2026, 3, 29, 7, 0, tzinfo=BERLIN), SPRING, EIGHT_HOURS),
        (subtract, date(2026, 3, 30), SPRING, Duration(Fraction(25 * 3600))),
        (subtract, datetime(2026, 3, 29, 7, 0), SPRING, EIGHT_HOURS),
        (subtract, SPRING, datetime(2026, 3, 28, 14, 0), EIGHT_HOURS),
        (multiply, TWO, HOUR, Duration(Fraction(7200))),
        (multiply, MILE, TWO, Quantity(TWO, "mile")),
        (divide, DAY, HOUR, Fraction(24)),
        (divide, HOUR, TWO, Duration(Fraction(1800))),
        (divide, MILE, MILE, ONE),
    ],
)
def test_values_that_go_together_have_a_result(
    operation: Callable[[Value, Value], Value], left: Value, right: Value, result: Value
) -> None:
    assert operation(left, right) == result


@pytest.mark.parametrize(
    ("operation", "left", "right"),
    [
        (add, NOON, NOON),
        (add, NOON, MONTH),
        (add, MILE, Quantity(ONE, "kilometer")),
        (add, "a", "b"),
        (add, MOMENT, ONE),
        (add, MOMENT, Duration(months=12 * 9000)),
        (subtract, ONE, HOUR),
        (subtract, ONE, True),
        (multiply, HOUR, HOUR),
        (multiply, MONTH, Fraction(1, 2)),
        (divide, ONE, HOUR),
        (divide, MONTH, MONTH),
    ],
)
def test_values_that_do_not_are_refused(operation: Callable[[Value, Value], Value], left: Value, right: Value) -> None:
    with pytest.raises(BadProgram):
        operation(left, right)


def test_numbers_durations_and_quantities_have_a_negative() -> None:
    assert negated(ONE) == -1
    assert negated(Duration(Fraction(1), 1)) == Duration(Fraction(-1), -1)
    assert negated(MILE) == Quantity(-ONE, "mile")
    for other in (True, "text", NOON, SUNDAY):
        with pytest.raises(BadProgram):
            negated(other)


@pytest.mark.parametrize(("name", "offsets"), [("Europe/Berlin", [1, 2]), ("Asia/Tokyo", [9, 9])])
def test_the_time_of_this_machine_has_a_zone_that_knows_when_clocks_are_changed(
    monkeypatch: pytest.MonkeyPatch, name: str, offsets: list[int]
) -> None:
    monkeypatch.setenv("TZ", name)
    values._local_zone.cache_clear()
    zone = values.local_time().tzinfo
    values._local_zone.cache_clear()
    found = [datetime(2026, month, 1, tzinfo=zone).utcoffset() for month in (1, 7)]
    assert found == [timedelta(hours=hours) for hours in offsets]


@pytest.mark.parametrize(
    ("value", "digits", "result"),
    [("2.5", 0, "3"), ("-2.5", 0, "-3"), ("0.125", 2, "0.13"), ("2.675", 2, "2.68"), ("1250", -2, "1300")],
)
def test_halves_are_rounded_away_from_zero(value: str, digits: int, result: str) -> None:
    assert rounded(Fraction(value), digits) == Fraction(result)
