"""How streamed text is split into clauses, and what is pronounced."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice.clause_pace import ClausePace
from voice.clauses import ClauseSplitter


def split(text: str, size: int = 3) -> list[str]:
    """Clauses of a text that arrives a few characters at a time."""
    splitter, clauses = ClauseSplitter(), []
    for start in range(0, len(text), size):
        clauses += splitter.push(text[start : start + size])
    return [clause.text for clause in clauses + splitter.flush()]


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("Paris. It lies on the Seine.", ["Paris.", " It lies on the Seine."]),
        ("Well, it is Paris.", ["Well,", " it is Paris."]),
        ("The capital of France is Paris.", ["The capital of France", " is Paris."]),
        ("About 3.5 million people live there.", ["About 3.5 million people", " live there."]),
        ("Yes. Dr. Smith and Mr. J. Jones know.", ["Yes.", " Dr. Smith and Mr. J. Jones", " know."]),
        ("No. Tomatoes are fruits.", ["No.", " Tomatoes are fruits."]),
        ("It is 5 p.m. in Lisbon.", ["It is 5 p.m. in Lisbon."]),
        ("I have eighteen cats at home.", ["I have eighteen cats", " at home."]),
        ("Sure! One, two, three.", ["Sure!", " One, two, three."]),
        (
            "Good. When you have boiled the water, add the eggs and wait.",
            ["Good.", " When you have boiled", " the water, add the eggs and wait."],
        ),
        ("The moon is about 238,857 miles away.", ["The moon is about", " 238,857 miles away."]),
        ("There are 12 players.", ["There are 12 players."]),
        ("It costs almost $20 now.", ["It costs almost", " $20 now."]),
        (
            "A giraffe is 18 to 20 feet (5.5 to 6 meters) tall.",
            ["A giraffe is", " 18 to 20 feet", " (5.5 to 6 meters) tall."],
        ),
        ("Light travels 299,792,458 meters in a second.", ["Light travels 299,792,458 meters", " in a second."]),
        ("", []),
        ("Hi", ["Hi"]),
    ],
)
def test_clauses_end_where_a_speaker_would_breathe(text: str, clauses: list[str]) -> None:
    assert split(text) == clauses


def test_the_first_clause_comes_early_and_a_long_one_is_cut() -> None:
    splitter = ClauseSplitter()
    assert splitter.push("Water boils at ") == []
    (first,) = splitter.push("sea level temperatures around ")
    assert first.text == "Water boils at sea"
    later = splitter.push("word " * 70)
    assert [len(clause.text.split()) for clause in later] == [10, 24, 24]  # each plays while the next one is prepared
    assert not any(clause.ends_sentence for clause in later)


def test_on_a_slow_machine_clauses_grow_slower() -> None:
    pace = ClausePace()
    pace.add_generation(10, 1.0)
    pace.add_synthesis(10, 0.75, 3.0)  # 0.175 s to prepare a word, which plays for 0.3 s
    assert pace.growth == pytest.approx(1.2)
    clauses = ClauseSplitter(pace).push("word " * 30)
    assert [len(clause.text.split()) for clause in clauses] == [3, 5, 11]
    pace.add_generation(10, 100.0)
    assert len(ClauseSplitter(pace).push("word " * 9)) == 3  # three words are the least


def test_the_pace_of_a_fast_machine_does_not_make_clauses_longer() -> None:
    pace = ClausePace()
    pace.add_generation(10, 0.0)
    pace.add_synthesis(10, 0.0, 3.0)
    assert pace.growth == ClausePace().growth == 2.0


@given(st.text(alphabet="ab .,!?\n—1", max_size=200), st.integers(1, 9))
def test_joined_clauses_are_exactly_the_text(text: str, size: int) -> None:
    assert "".join(split(text, size)) == text


def test_a_whole_page_that_arrives_at_once_is_divided_quickly() -> None:
    start = time.thread_time()
    clauses = ClauseSplitter().push(5000 * "\n" + 20_000 * "x" + 3000 * ".," + "\n")
    assert time.thread_time() - start < 1
    assert "".join(clause.text for clause in clauses).startswith("\n")


def test_a_run_of_digits_is_cut_before_it_keeps_the_voice_busy_for_a_minute() -> None:
    for run in ("9" * 240, "7%" * 120, "½" * 240):
        clauses = split(run)
        assert "".join(clauses) == run
        assert max(sum(map(str.isnumeric, clause)) for clause in clauses) == 48
