"""N-gram look-up against a slow search."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from model.decode.ngram import NgramLookup


@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(0, 2), max_size=20), st.integers(1, 6))
def test_look_up_copies_what_followed_the_last_occurrence_of_the_newest_three_tokens(
    before: list[int], after: list[int], length: int
) -> None:
    lookup = NgramLookup(before)
    lookup.extend(after)
    tokens, expected = before + after, ()
    for start in range(len(tokens) - 4, -1, -1):
        if tokens[start : start + 3] == tokens[-3:]:
            expected = tuple(tokens[start + 3 : start + 3 + length])
            break
    assert lookup.find(length) == expected
