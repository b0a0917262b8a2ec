"""Sentences that claim deeds of functions that were not called are not said; others are said at once."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from agent.claims import NOT_DONE, handing_over_tasks, without_claims
from chat.progress import Progress
from chat.types import Tool

TOOLS = (
    Tool("unlock_door", "Unlock the front door.", {}),
    Tool("setLight", "Turn the light of a room on or off.", {}),
    Tool("send_money", "Send money to somebody.", {}),
)


async def replying(text: str) -> AsyncIterator[Progress]:
    """A text that is written word by word."""
    words = text.split(" ")
    for number, word in enumerate(words):
        last = number == len(words) - 1
        yield Progress(word if last else f"{word} ", finished="stop" if last else None)


async def said(text: str) -> list[str]:
    """What is said of a text that is written word by word."""
    return [progress.committed async for progress in without_claims(replying(text), TOOLS)]


@pytest.mark.parametrize(
    "claim",
    [
        "I have unlocked the door for you.",
        "I've just unlocked it.",
        "Okay, I unlocked the door!",
        "Sure! I have sent 20 euros to Anna.",
        "The door is now unlocked.",
        "Your front door has been successfully unlocked.",
        "The light in the kitchen has been turned off.",
        "I set the light.",
    ],
)
async def test_a_claim_is_not_said(claim: str) -> None:
    assert "".join(await said(claim)) == (f"Sure! {NOT_DONE}" if claim.startswith("Sure") else NOT_DONE)
    after = "".join(await said(f"Kim says hello. {claim} Anything else?"))
    assert after.strip() == ("Kim says hello. Sure!" if claim.startswith("Sure") else "Kim says hello.")


@pytest.mark.parametrize(
    "answer",
    [
        "The door is open on Sundays.",
        "The capital of France is Paris.",
        "I can't unlock the door.",
        "I have heard of it.",
        "I turn off at nine.",
        "The lighthouse was painted in 1920.",
        "Unlocked doors are a risk.",
        "If the door is unlocked, close it.",
        "Kim unlocked the door.",
        "I",
        "The door",
        "The door is",
        "Do you want me to unlock it? I have not done so.",
    ],
)
async def test_other_answers_are_said_as_they_are(answer: str) -> None:
    assert "".join(await said(answer)) == answer


async def test_only_a_sentence_that_may_become_a_claim_is_held_back() -> None:
    assert (await said("It is late. The door is open on Sundays."))[:4] == ["It ", "is ", "late. ", ""]
    assert (await said("The capital of France is Paris."))[:4] == ["", "", "The capital of ", "France "]


async def test_drafts_that_follow_what_is_held_back_are_not_shown() -> None:
    async def drafting() -> AsyncIterator[Progress]:
        yield Progress("The door ")
        yield Progress("", draft="is open")
        yield Progress("is open ", draft="now")

    shown = [(progress.committed, progress.draft) async for progress in without_claims(drafting(), TOOLS)]
    assert shown[:2] == [("", ""), ("", "")] and shown[2][0] == "The door is open "


@pytest.mark.parametrize(
    "report",
    [
        "I wrote down: milk and bread.",
        "Okay, I'll remind you to call Anna at seven.",
        "I have set an alarm for you.",
        "I've cancelled it.",
        "Your timer for 5 minutes is running.",
        "Sure! Your pasta timer is set.",
        "There are no timers running.",
        "Yes, you do have an alarm set for seven.",
        "You have two reminders.",
        "It is cancelled.",
        "They are now deleted.",
        "I added bread to your shopping list.",
        "I'll add that.",
        "The alarm is set for 7 AM.",
        "",
    ],
)
async def test_a_first_sentence_that_reports_a_task_is_handed_over(report: str) -> None:
    progress = [one async for one in handing_over_tasks(replying(report))]
    assert "".join(one.committed for one in progress) == "" and progress[-1].finished == "task"


@pytest.mark.parametrize(
    "answer",
    [
        "The capital of France is Paris.",
        "The alarm clock was invented in 1787. Your alarm is set.",
        "To set an alarm, open the app.",
        "I can set timers and alarms.",
        "I like reminders.",
        "You can set a timer.",
        "You have a good point.",
        "There are seven days in a week.",
        "It is a nice day.",
        "It is",
        "I",
        "Your",
        "Your idea of a long walk sounds good.",
        "Remind me of your name.",
        "I'll write you a short poem. Roses are red.",
        "There is a note of vanilla in this wine.",
        "It was cancelled in 2005 after three seasons.",
        "It is set in Paris.",
        "The alarm was invented in 1787.",
        "Your first note is C.",
        "I set great store by honesty, of course.",
    ],
)
async def test_other_first_sentences_are_said(answer: str) -> None:
    progress = [one async for one in handing_over_tasks(replying(answer))]
    assert "".join(one.committed for one in progress) == answer and progress[-1].finished == "stop"


async def test_the_usual_beginning_of_an_answer_is_held_back_for_two_words_only() -> None:
    said = [one.committed async for one in handing_over_tasks(replying("The capital of France is Paris."))]
    assert said[:4] == ["", "", "The capital of ", "France "]
