"""Long responses end with a sentence, and offer to go on."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence

import pytest

from agent.brevity import MAX_WORDS, OFFER, brief
from chat.progress import Progress
from chat.types import ToolCallDelta

SHORT = "The moon is so far away that a rocket takes three days. It takes light a second."
TEN = "One two three four five six seven eight nine ten. "


async def said(parts: Sequence[str], finished: str = "stop", draft: str = "") -> list[Progress]:
    closed = False

    async def replying() -> AsyncIterator[Progress]:
        nonlocal closed
        try:
            for number, part in enumerate(parts, 1):
                confidence = (0.5,) if draft else ()
                ends = (len(draft),) if draft else ()
                last = finished if number == len(parts) else None
                yield Progress(part, finished=last, draft=draft, confidence=confidence, draft_ends=ends)
        finally:
            closed = True

    progress = [one async for one in brief(replying())]
    assert closed and progress[-1].finished is not None and not any(one.finished for one in progress[:-1])
    return progress


def text(progress: Sequence[Progress]) -> str:
    return "".join(one.committed for one in progress)


def words(whole: str) -> list[str]:
    return [f"{word} " for word in whole.split()]


@pytest.mark.parametrize(
    "whole", [SHORT, "Yes.", "", "No end", TEN * 4, "one " * 70, f"{TEN * 3}It is 3.5 km to e.g. St. Ives."]
)
async def test_what_is_not_too_much_is_said_as_it_is(whole: str) -> None:
    progress = await said(words(whole) or [""])
    assert text(progress).split() == whole.split() and progress[-1].finished == "stop"


async def test_the_first_sentence_is_passed_on_word_by_word() -> None:
    progress = await said(words(SHORT))
    assert [one.committed for one in progress[:12]] == words(SHORT)[:12]
    assert [one.committed for one in progress[12:]] == [""] * 4 + ["It takes light a second. "]


@pytest.mark.parametrize("finished", ["stop", "length"])
@pytest.mark.parametrize("count", [5, 9])
async def test_a_long_response_ends_with_a_sentence_and_offers_to_go_on(count: int, finished: str) -> None:
    progress = await said(words(TEN * count), finished)
    assert text(progress).split() == (TEN * 4 + OFFER).split() and progress[-1].finished == "stop"
    assert text(progress).endswith(f". {OFFER}")


async def test_a_sentence_without_an_end_is_stopped() -> None:
    progress = await said(words("s, i, " * 500))
    assert text(progress).split() == ("s, i, " * 41).split()[:81] and progress[-1].finished == "stop"


async def test_a_last_sentence_that_is_never_complete_counts_too() -> None:
    progress = await said(words(TEN * 4 + "and so on"), "length")
    assert text(progress).split() == (TEN * 4 + OFFER).split()


async def test_a_list_is_divided_between_its_items() -> None:
    items = "".join(f"{n}. One two three four five six\n" for n in range(1, 12))
    spoken = text(await said([f"Some ideas:\n{items}"[n : n + 3] for n in range(0, 400, 3)]))
    assert spoken.endswith(f"six\n{OFFER}") and "5. One" in spoken and "6. One" not in spoken
    assert len(spoken.split()) <= MAX_WORDS + len(OFFER.split())


async def test_a_long_first_sentence_is_not_cut() -> None:
    whole = "word " * 60 + "end. "
    assert text(await said(words(whole + TEN))).split() == (whole + OFFER).split()


async def test_what_is_held_back_is_shown_as_a_draft() -> None:
    progress = await said(
        [*words("Yes, it is one of the very far ones that people know."), "It is ", "far. "], draft="aw"
    )
    shown = [(one.draft, one.draft_ends, one.confidence) for one in progress]
    assert shown[11] == ("aw", (2,), (0.5,)), "the first sentence is said as it comes"
    assert shown[12] == ("It is aw", (6, 8), (1.0, 0.5))
    assert text(progress).endswith("know. It is far. ")


@pytest.mark.parametrize("opening", ["Sure! ", "Yes. One. Two. ", "The U.S. ", "At 5 p.m. "])
async def test_a_short_opening_alone_is_no_answer(opening: str) -> None:
    whole = opening + "word " * 45 + "end. "
    assert text(await said(words(whole + TEN))).split() == (whole + OFFER).split()


async def test_calls_are_passed_on() -> None:
    calls = (ToolCallDelta(0, "find", "{}", True),)

    async def replying() -> AsyncIterator[Progress]:
        yield Progress("Let me see. I will")
        yield Progress(" look", finished="tool_calls", tool_calls=calls)

    progress = [one async for one in brief(replying())]
    assert text(progress) == "Let me see. I will look" and progress[-1].tool_calls == calls


@pytest.mark.parametrize("part", ["1. ", "a. ", "Mr. ", "7 ", "Yes. ", "... "])
async def test_a_response_of_many_small_parts_takes_no_time(part: str) -> None:
    started = time.process_time()
    await said([part] * 800)
    assert time.process_time() - started < 0.5
