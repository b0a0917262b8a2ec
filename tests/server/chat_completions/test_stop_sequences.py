"""Stop sequences in a growing text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from server.chat_completions.stop_sequences import StopSequences

LETTERS = st.text("ab", max_size=12)


@given(st.lists(LETTERS, max_size=8), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_the_text_ends_where_the_first_sequence_begins(parts: list[str], sequences: list[str]) -> None:
    stop, passed = StopSequences(sequences), ""
    for number, part in enumerate(parts):
        passed += stop.push(part, last=number == len(parts) - 1)
        whole = "".join(parts[: number + 1])
        # What was passed on never has to be taken back.
        assert whole.startswith(passed) and not any(sequence in passed for sequence in sequences)
        if stop.stopped:
            break
    whole = "".join(parts)
    starts = [start for sequence in sequences if (start := whole.find(sequence)) >= 0]
    assert stop.stopped == bool(starts)
    if not starts:
        assert passed == whole


def test_text_that_may_become_a_sequence_is_held_back() -> None:
    stop = StopSequences(["END", "\n\n"])
    assert stop.push("hello E") == "hello "
    assert stop.push("NE") == "EN"
    assert stop.push("\n") == "E"
    assert stop.push("\nmore") == "" and stop.stopped
