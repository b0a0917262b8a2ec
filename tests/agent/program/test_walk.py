"""Programs about paths: where somebody is after some moves and turns."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction

import pytest

from agent.program.evaluator import run_program
from agent.program.values import BadProgram, Value


def value(program: str) -> Value:
    ((found, _),) = run_program(program, datetime(2026, 11, 29, tzinfo=UTC), {}).answers
    return found


@pytest.mark.parametrize(
    ("moves", "distance"),
    [
        ("", Fraction(0)),
        ("forward(3)", Fraction(3)),
        ("forward(3) turn_left() forward(4)", Fraction(5)),
        ("forward(3) turn_around() forward(5)", Fraction(2)),
        ("turn_left() turn_left() forward(2) turn_right() turn_right() forward(2)", Fraction(0)),
        (
            "turn_right() forward(2) turn_right() forward(2) turn_right() forward(2) turn_right() forward(2)",
            Fraction(0),
        ),
        ("left(2) backward(5) right(2) forward(5)", Fraction(0)),
        ("turn_right() left(2) south(2)", Fraction(0)),
        ("turn_left() north(20) east(5) south(12) west(5) south(8.5)", Fraction(1, 2)),
        ("forward(-2) turn_around() forward(2)", Fraction(4)),
    ],
)
def test_a_walk_ends_where_its_moves_and_turns_lead(moves: str, distance: Fraction) -> None:
    program = "\n".join([*moves.split(), "answer = distance()"])
    assert value(program) == distance
    assert value(program.replace("distance()", "distance() == 0")) is (distance == 0)


def test_a_length_may_be_computed_and_the_distance_so_far_used() -> None:
    assert value("block = 50\nnorth(3 * block)\nhalf = distance() / 2\nwest(half)\nanswer = half") == 75


@pytest.mark.parametrize(
    "statement",
    ["forward()", "forward(1, 2)", 'forward("3")', "turn_left(90)", "answer = forward(1)", "answer = distance(1)"],
)
def test_a_move_needs_one_number_and_has_no_value(statement: str) -> None:
    with pytest.raises(BadProgram):
        value(f"{statement}\nanswer = 1 + 1")


def test_a_walk_cannot_lead_beyond_the_limits_of_numbers() -> None:
    far = "\n".join([f"north({'9' * 200})", *["step = distance()", "east(step * step)"] * 6, "answer = distance()"])
    with pytest.raises(BadProgram):
        value(far)
