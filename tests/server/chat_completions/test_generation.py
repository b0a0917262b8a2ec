"""Stop sequences in a growing text, and answers in words that a voice can pronounce."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import OpenAI

from chat.progress import Progress
from server.chat_completions.generation import StopSequences, speakable

LETTERS = st.text("ab", max_size=12)
QUESTION: list[Any] = [{"role": "user", "content": "hello to you"}]
MARKED_UP = "**Two ideas**:\n1. Pay $3.50 by 9 a.m.\n2. Wait.\n```\nx = 1\n```\nThat's 50%!"


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


async def test_an_answer_is_spoken_clause_by_clause() -> None:
    async def all_progress() -> AsyncIterator[Progress]:
        for start in range(0, len(MARKED_UP), 5):
            last = start + 5 >= len(MARKED_UP)
            finished: Any = "stop" if last else None
            yield Progress(MARKED_UP[start : start + 5], "draft", tokens=start, finished=finished)

    spoken = [progress async for progress in speakable(all_progress())]
    assert "".join(progress.committed for progress in spoken) == (
        "Two ideas: First, Pay three dollars and fifty cents by nine a.m. Second, Wait. That's fifty percent!"
    )
    assert len([one for one in spoken if one.committed]) > 2 and not any(one.draft for one in spoken)
    assert spoken[-1].finished == "stop" and spoken[-1].tokens > 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_gets_the_models_own_text_unless_it_asks(client: OpenAI, stream: bool) -> None:
    def content(**extra: bool) -> str:
        made: Any = client.chat.completions.create(
            model="tiny", messages=QUESTION, max_tokens=12, stream=stream, extra_body=extra
        )
        if stream:
            return "".join(chunk.choices[0].delta.content or "" for chunk in made)
        return made.choices[0].message.content  # type: ignore[no-any-return]

    own, spoken = content(), content(speakable=True)
    assert own.split() and spoken.split()
    assert content(speakable=False) == own


@pytest.mark.parametrize(
    "other", [{"logprobs": True}, {"diffusing": True}, {"response_format": {"type": "json_object"}}]
)
def test_it_cannot_be_combined_with_what_needs_the_models_own_text(client: OpenAI, other: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError, match="speakable text has no"):
        client.chat.completions.create(
            model="tiny", messages=QUESTION, max_tokens=4, extra_body={"speakable": True, **other}
        )
