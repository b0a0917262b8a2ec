"""What may be added, subtracted, multiplied and divided, and what may not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from fractions import Fraction

import pytest

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
    subtract,
)

HOUR, DAY, MONTH = Duration(Fraction(3600)), Duration(Fraction(86_400)), Duration(months=1)
NOON, NINE_PM, FIVE = Clock(720), Clock(21 * 60), Clock(300, certain=False)
MOMENT, SUNDAY = datetime(2026, 11, 22, 15, 0, tzinfo=UTC), date(2026, 11, 22)
ONE, TWO = Fraction(1), Fraction(2)
MILE = Quantity(ONE, "mile")


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
