"""Numbers that a model makes up are not said."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agent.documents.support import NOT_STATED, Support, only_supported
from chat.progress import Progress
from tests.fakes import run_on_virtual_clock

OPENING = "According to House,"
TEXTS = ("The house of 1908 has 24 rooms on three floors, 5.2 metres high.", "Closed from two in the afternoon: 14:45.")


def said_of(*parts: str, openings: tuple[str, ...] = (OPENING,)) -> list[str]:
    """What is said of a response that arrives in parts, one entry each."""

    async def replying() -> AsyncIterator[Progress]:
        for number, part in enumerate(parts, 1):
            yield Progress(part, draft="99", finished="stop" if number == len(parts) else None)

    async def collect() -> list[str]:
        progress = [one async for one in only_supported(replying(), Support(openings, TEXTS))]
        assert not any(one.draft for one in progress)
        assert progress[-1].finished == "stop"
        return [one.committed for one in progress if one.committed]

    return run_on_virtual_clock(collect)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("it has 24 rooms.", None),
        ("it has twenty-four rooms, was built in nineteen oh eight, and is 5.2 m high.", None),
        ("it closes at a quarter to three or at 14:45.", None),
        ("it has 11 doors.", None),
        ("it is 120 metres deep.", NOT_STATED),
        ("it has a hundred and twenty rooms, and 24 windows.", NOT_STATED),
        ("it has 24 rooms, and a lake that is 120 metres deep. It is old.", "it has 24 rooms, "),
        ("it has three floors. It was sold in 1921. It is old.", "it has three floors. "),
    ],
)
def test_a_number_that_no_passage_has_is_not_said(answer: str, said: str | None) -> None:
    expected = f"{OPENING} {answer if said is None else said}"
    assert "".join(said_of(f"{OPENING} {answer}")) == expected
    assert "".join(said_of(*f"{OPENING} {answer}")) == expected


def test_the_opening_does_not_wait_for_the_answer_and_a_clause_waits_for_its_end() -> None:
    parts = ("According", " to House, ", "it has", " 24 rooms, ", "and 5", ".2", " metres.")
    assert said_of(*parts) == ["According to House, ", "it has 24 rooms, ", "and 5.2 metres."]


def test_what_does_not_come_from_documents_is_not_checked() -> None:
    assert said_of("As far", " as I know, it boils at 77.3 degrees.") == [
        "As far",
        " as I know, it boils at 77.3 degrees.",
    ]
    assert said_of("It has 99.", openings=()) == ["It has 99."]


def test_a_task_is_passed_on_and_ends_the_response() -> None:
    async def replying() -> AsyncIterator[Progress]:
        yield Progress(finished="task")

    async def collect() -> list[str | None]:
        return [one.finished async for one in only_supported(replying(), Support((OPENING,), TEXTS))]

    assert run_on_virtual_clock(collect) == ["task"]
