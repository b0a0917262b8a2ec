"""Spoken templates mark every position where a turn could be complete."""

from __future__ import annotations

import random

from lab.convert.spoken_templates import spoken_sentences


def test_templates_label_where_a_turn_could_end() -> None:
    texts = [words for _, words in spoken_sentences(random.Random(1))]
    labels = {" ".join(word for word, _ in words): [ends for _, ends in words] for words in texts}
    assert all(mark not in word for words in texts for word, _ in words for mark in "|~{}!")
    assert labels["turn it up a little"] == [False, False, True, False, True]
    assert labels["what time is it"] == [False, False, False, True]
    assert labels["remind me to"] == [False] * 3
    dictated = [words for words in texts if len(words) == 13 and words[0][0] == "my" and words[1][0] == "number"]
    assert [ends for _, ends in dictated[0]] == [False] * 9 + [None] + [False] * 2 + [True]
