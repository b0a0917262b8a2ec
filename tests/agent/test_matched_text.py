"""What patterns read of a text from outside."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.matched_text import MAX_SAID, for_patterns, is_cut


def test_runs_of_white_space_are_one_space() -> None:
    assert for_patterns("  set a\n\n timer \t for five minutes ") == "set a timer for five minutes"


def test_of_a_long_text_the_beginning_and_the_end_remain() -> None:
    text = f"Set a timer. {'blah ' * 1000}For five minutes."
    cut = for_patterns(text)
    assert cut.startswith("Set a timer.") and cut.endswith("For five minutes.")
    assert is_cut(cut) and not is_cut("Set a timer.")


def test_only_the_end_remains_where_the_last_words_count() -> None:
    assert for_patterns("no " * 1000 + "yes", 9, end=True) == "no no yes"


@given(st.text(), st.integers(10, 40), st.booleans())
def test_no_text_is_longer_than_its_limit(text: str, limit: int, end: bool) -> None:
    assert len(for_patterns(text * 9, limit, end=end)) <= limit


def test_a_short_text_keeps_all_its_words() -> None:
    text = "word " * (MAX_SAID // 5 - 1)
    assert for_patterns(text).split() == text.split()
