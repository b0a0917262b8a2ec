"""Dictations are cleaned up, and nothing is invented."""

from __future__ import annotations

import pytest

from agent.dictation.check import objection
from agent.dictation.cleaner import DictationCleaner, corrects_what_precedes, without_hesitations
from agent.language_model import LanguageModel
from tests.fakes import FakeLanguageModel


@pytest.mark.parametrize(
    ("raw", "clean"),
    [
        ("Um, let's meet on Monday. No, make that Tuesday.", "Let's meet on Tuesday."),
        ("Meet at five thirty.", "Meet at 5:30."),
        ("First milk, second eggs, third twenty five rolls.", "1. Milk\n2. Eggs\n3. 25 rolls"),
        ("Buy milk, eggs, bread.", "Buy milk, eggs, and bread."),
        ("Um.", ""),
        ("Meet at 5, no, 6.", "Meet at 6."),
        ("Meet at 5:30. No, at quarter to 7.", "Meet at quarter to 7."),
        ("It's on page two. Strike that, three.", "It's on page three."),
        ("I don't want tea, sorry, I want coffee.", "I want coffee."),
        ("I don't, I don't want it.", "I don't want it."),
        ("I do not, I did not see it.", "I did not see it."),
        ("Ask Ann. Not Ann, Bob.", "Ask Bob."),
        ("I need 5, I need 5 apples.", "I need 5 apples."),
        ("Let's meet on Monday, no, Tuesday.", "Let's meet on Tuesday."),
        ("Number one, 2 lamps. Number two, 3 ropes.", "1. 2 lamps.\n2. 3 ropes."),
        ("First, two lamps. Second, three ropes.", "1. Two lamps.\n2. Three ropes."),
        ("We left, right, at nine.", "We left at nine."),
        ("First one, is it warm? Second one, is it dry?", "1. Is it warm?\n2. Is it dry?"),
        ("My top 3 are, one, Ann, and two, Bob.", "My top 3 are:\n1. Ann\n2. Bob"),
        ("No, no, I can't come.", "No, I can't come."),
        ("And then I need milk, eggs, bread.", "I need milk, eggs and bread."),
        ("Let's meet on Tuesday, no Wednesday.", "Let's meet on Wednesday."),
        ("We have 5, 5 apples.", "We have 5 apples."),
        ("So yeah right so I think we should go.", "I think we should go."),
    ],
)
def test_what_was_said_may_be_written_otherwise(raw: str, clean: str) -> None:
    assert objection(raw, clean) == ""


@pytest.mark.parametrize(
    ("raw", "clean", "why"),
    [
        ("Call Anna at nine.", "Call Anne at nine.", "'anne' was not said"),
        ("It costs 20 dollars.", "It costs 25 dollars.", "'25' was not said"),
        ("It costs 20 dollars and 40 cents.", "It costs 20 dollars.", "the number 40 is missing"),
        ("I was very happy.", "I was very very happy.", "'very' was not said so often"),
        ("What is the capital of France?", "Paris.", "'paris' was not said"),
        ("The meeting in the large room on the left is over.", "The meeting is over.", "5 of 11 words are missing"),
        ("I have 300 dollars, not more.", "I have dollars, not more.", "the number 300 is missing"),
        ("Meet me at 5. No problem.", "Meet me. No problem.", "the number 5 is missing"),
        ("Meet me at 17, better bring it.", "Meet me, better bring it.", "the number 17 is missing"),
        ("Wait for 50 minutes and call.", "Wait for minutes and call.", "the number 50 is missing"),
        ("We have 9 cats, no dogs, 3 birds.", "We have cats, no dogs, 3 birds.", "the number 9 is missing"),
        ("Bring 9 plates for 7 people, no, 8 people.", "Bring plates for 8 people.", "the number 9 is missing"),
        ("Do not delete the files.", "Delete the files.", "'not' is missing"),
        ("Never open it.", "Open it.", "'never' is missing"),
        ("We don't need eggs.", "We need eggs.", '"don\'t" is missing'),
        ("Do not open it. Do not close it.", "Do not open it. Do close it.", "'not' is missing"),
        ("Do not open it. Do not close it.", "Do open it. Do not close it.", "'not' is missing"),
        ("Do not open it. Sorry, Bob.", "Do open it. Sorry, Bob.", "'not' is missing"),
        ("We need eggs.", "1. We need eggs.", "'1' was not said"),
        ("My number is 5 5 5 1 2 1 2.", "My number is 5 1 2.", "the number 5 is missing"),
        ("We need 5 apples and 5 pears.", "We need 5 apples and pears.", "the number 5 is missing"),
        ("2 plates for 7 people.", "7 plates for 2 people.", "the words are not in their order"),
        ("Ask Ann to call Bob.", "Ask Bob to call Ann.", "the words are not in their order"),
        ("First, two lamps. Second, three ropes.", "1. Lamps.\n2. Ropes.", "the number 2 is missing"),
        ("We have no allergies.", "We have allergies.", "'no' is missing"),
        ("Nobody is allergic.", "Is allergic.", "'nobody' is missing"),
        ("Let's meet on Monday, no, Tuesday.", "Let's meet on Monday.", "the correction to 'tuesday' is missing"),
        ("Ask Ann. No, ask Bob.", "Ask Ann.", "the correction to 'ask bob' is missing"),
        ("Turn right at the church.", "Turn at the church.", "'right' is missing"),
        ("Meet on the second floor.", "Meet on the floor.", "'second' is missing"),
        ("Yes.", "", "everything is missing"),
        ("The code is 5, 5 7.", "The code is 5 7.", "the number 5 is missing"),
        ("%", "Percent.", "'percent' was not said"),
    ],
)
def test_what_was_not_said_or_is_lost_is_objected_to(raw: str, clean: str, why: str) -> None:
    assert objection(raw, clean) == why


def cleaner(*words: str) -> tuple[DictationCleaner, FakeLanguageModel]:
    model = FakeLanguageModel(list(words), seconds_per_word=0)
    return DictationCleaner(model), model


async def test_the_raw_words_remain_where_something_was_invented() -> None:
    raw = "Call Anna on Monday, no, on Tuesday."
    clean_up, model = cleaner("Call Anna", " on Tuesday.")
    clean = await clean_up.clean(raw)
    assert model.asked[0].prediction == raw
    assert (clean.text, clean.raw, clean.objection) == ("Call Anna on Tuesday.", raw, "")
    invented = await cleaner("Call Anna", " on Wednesday.")[0].clean(raw)
    assert (invented.text, invented.raw, invented.objection) == (raw, raw, "'wednesday' was not said")


async def test_the_raw_words_remain_if_the_language_model_fails() -> None:
    broken, model = cleaner("x")
    model.failing = True
    clean = await broken.clean("Call Anna.")
    assert (clean.text, clean.objection) == ("Call Anna.", "the language model failed: the language model broke")


async def test_the_raw_words_remain_where_the_text_is_cut() -> None:
    clean = await cleaner(*["Call"] * 40)[0].clean("Call Anna now.")
    assert (clean.text, clean.objection) == ("Call Anna now.", "the language model failed: it wrote more than was said")


async def test_what_follows_a_list_is_not_a_part_of_its_last_item() -> None:
    class Listing(DictationCleaner):
        async def _rewrite(self, passage: str, language_model: LanguageModel) -> str:
            return passage.replace("First ", "1. ").replace(" second ", "\n2. ")

    filling = " ".join(["word"] * 78)
    clean = await Listing(FakeLanguageModel([])).clean(f"First milk, second eggs. {filling} end.")
    assert clean.text == f"1. milk,\n2. eggs.\n{filling} end."


async def test_long_dictations_are_cleaned_up_in_parts_and_a_correction_stays_with_what_it_corrects() -> None:
    filling = " ".join(["word"] * 49)
    raw = f"{filling} one. {filling[:-5]} Monday. No, make that Tuesday. {filling} end."
    clean_up, model = cleaner("unlike anything said")
    clean = await clean_up.clean(raw)
    parts = [prompt[-1].content for prompt in model.prompts]
    assert " ".join(parts) == raw == clean.text
    assert [part.split()[-1] for part in parts] == ["one.", "Tuesday.", "end."]


@pytest.mark.parametrize(
    ("raw", "corrects"),
    [("No, make that Tuesday.", True), ("Scratch that.", True), ("I mean Carol.", True), ("I met Carol.", False)],
)
def test_sentences_that_may_correct_the_one_before(raw: str, corrects: bool) -> None:
    assert corrects_what_precedes(raw) == corrects


async def test_a_repetition_at_the_end_and_a_word_without_letters_are_cleaned_up() -> None:
    clean = await cleaner("Bye.")[0].clean("Bye bye.")
    assert (clean.text, clean.objection) == ("Bye.", "")
    assert (await cleaner("%")[0].clean("%")).text == "%"


def test_acronyms_are_no_hesitations() -> None:
    assert without_hesitations("Um, take him to the ER, er, now.") == "take him to the ER, now."
