"""Work on a guess: what is made behind the closed gate, when it is heard, and when nobody ever hears of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest

from tests.fakes import FakeBrain, FakeProgress
from tests.voice.tables import Table, table
from voice import events
from voice.asr import FINAL_WINDOW, PARTIAL_WINDOW
from voice.brain import Message
from voice.speaking import Settings
from voice.timing import Timing
from voice.turn import TurnRules

LONG = ["Here", " are", " many", " words", " that", " take", " a", " while", *[" to"] * 20, " say", " aloud."]


def answers(t: Table) -> list[str]:
    """The text of each response."""
    ids = [e.response_id for e in t.all(events.AnswerStarted)]
    return ["".join(e.text for e in t.all(events.AnswerText) if e.response_id == one) for one in ids]


def test_a_turn_that_is_surely_over_is_answered_after_the_shortest_wait() -> None:
    async def work(t: Table) -> None:
        t.brain.over, t.recognizer.text = 0.99, "Turn on the light"
        await t.ask(3.0)

    t = table(work)
    (done,) = t.all(events.AnswerDone)
    assert done.timeline.latency_ms() == pytest.approx(Timing.shortest_wait_ms, abs=40)
    assert done.timeline.guess_kept and done.timeline.over is not None and done.timeline.over > 0.9


def test_a_turn_that_is_surely_not_over_is_waited_for() -> None:
    async def work(t: Table) -> None:
        t.recognizer.text = "I would like to go to the"
        await t.ask(3.0)

    t = table(work)
    (done,) = t.all(events.AnswerDone)
    assert done.timeline.waited_ms == pytest.approx(Timing.patient_wait_ms, abs=40)


def test_nothing_of_a_guess_is_heard_or_remembered_before_the_turn_is_over() -> None:
    async def work(t: Table) -> None:
        t.brain.over, t.recognizer.text = 0.01, "Turn on the light"
        await t.ask(0.6)  # the answer has long been made
        assert t.brain.prompts and t.brain.prompts[0][-1].content == t.recognizer.text
        assert not t.session.history.items
        kinds = {type(e) for _, e in t.happened}
        assert kinds == {events.SpeechStarted, events.PhaseChanged, events.PartialTranscript}
        await t.hear(2.0, 0.0)

    t = table(work)
    assert answers(t) == ["The capital of France is Paris."]
    assert len(t.brain.prompts) == 1


@pytest.mark.parametrize(("pace", "turns"), [(0.02, 2), (0.15, 1)])
def test_who_goes_on_before_anything_could_be_heard_is_in_the_same_turn(pace: float, turns: int) -> None:
    async def work(t: Table) -> None:
        t.brain.pace, t.brain.over = pace, 0.98
        await t.hear(1.0, 0.5)
        await t.hear(0.45, 0.0)
        await t.hear(1.0, 0.5)
        await t.hear(3.0, 0.0)

    t = table(work)
    assert len(t.all(events.InputCommitted)) == turns
    assert len(t.all(events.AnswerStarted)) == turns


def test_speech_throws_the_guess_away_and_the_next_one_knows_more() -> None:
    async def work(t: Table) -> None:
        t.brain.pace = 0.3
        t.recognizer.text = "I would like um"
        await t.hear(1.0, 0.5)
        await t.hear(0.5, 0.0)
        t.recognizer.text = "I would like some tea."
        await t.hear(1.0, 0.5)
        await t.hear(5.0, 0.0)

    t = table(work)
    assert [prompt[-1].content for prompt in t.brain.prompts] == ["I would like um", "I would like some tea."]
    assert len(t.all(events.AnswerStarted)) == 1
    assert [item.text for item in t.session.history.items if item.role == "user"] == ["I would like some tea."]
    (done,) = t.all(events.AnswerDone)
    assert done.timeline.guesses == 2


def test_a_brain_that_fails_on_a_guess_fails_the_answer_that_it_becomes() -> None:
    async def work(t: Table) -> None:
        t.brain.failing = True
        await t.ask(3.0)

    t = table(work)
    assert [(e.status, e.reason) for e in t.all(events.AnswerDone)] == [("failed", "the brain broke")]


def test_what_was_transcribed_as_the_user_fell_silent_is_the_transcript() -> None:
    t = table(lambda t: t.ask(3.0))
    assert [e.text for e in t.all(events.FinalTranscript)] == [t.recognizer.text]
    assert t.recognizer.windows[-1] == FINAL_WINDOW and set(t.recognizer.windows[:-1]) == {PARTIAL_WINDOW}
    assert t.recognizer.heard_s[-1] == pytest.approx(1.0 + 0.064, abs=0.05)


def test_words_that_have_settled_are_read_while_the_user_speaks() -> None:
    async def work(t: Table) -> None:
        t.recognizer.text = "one two three four five six seven eight nine"
        await t.ask(3.0)

    t = table(work)
    assert [p[-1].content for p in t.brain.prepared if p[-1].role == "user"] == [t.recognizer.text]


def test_silence_alone_decides_where_the_client_wants_it_so() -> None:
    async def work(t: Table) -> None:
        t.brain.over = 0.99
        await t.ask(3.0)

    rules = TurnRules(Timing(end_silence_ms=900), by_silence=True)
    (done,) = table(work, Settings(rules=rules)).all(events.AnswerDone)
    assert done.timeline.latency_ms() == pytest.approx(900, abs=40)


async def interrupted(t: Table, said: str, voiced_s: float = 0.3, silence_s: float = 4.0) -> None:
    """A long answer, and `said` over it."""
    t.brain.words, t.brain.pace = LONG, 0.0
    await t.ask(0.6)
    t.recognizer.text = said
    await t.hear(voiced_s, 0.5)
    await t.hear(silence_s, 0.0)


@pytest.mark.parametrize("said", ["Mhm.", "Yeah, right.", ""])
def test_a_word_of_listening_or_a_cough_pauses_the_answer_and_it_goes_on(said: str) -> None:
    t = table(lambda t: interrupted(t, said))
    first, second = t.all(events.AnswerDone)
    assert (first.status, second.status) == ("completed", "completed")  # all of the first one had been sent
    assert first.item.heard and "".join(LONG).startswith(first.item.heard)
    assert (first.item.heard + second.item.text).replace(" ", "") == "".join(LONG).replace(" ", "")
    assert len(t.brain.prompts) == 1  # the brain was not asked again
    assert second.timeline.latency_ms() is None  # no turn of its own


def test_other_words_give_the_answer_up_and_are_answered() -> None:
    t = table(lambda t: interrupted(t, "No, tell me about cats."))
    first, _ = t.all(events.AnswerDone)
    assert t.brain.prompts[1][-1] == Message("user", "No, tell me about cats.")
    assert t.brain.prompts[1][-2].content == first.item.heard.strip()


def test_a_yes_at_the_end_of_the_answer_answers_it() -> None:
    async def work(t: Table) -> None:
        t.brain.words, t.brain.pace = ["Shall", " I", " go", " on?"], 0.0
        await t.ask(0.5)
        t.recognizer.text = "Yes."
        await t.hear(0.3, 0.5)
        await t.hear(3.0, 0.0)

    t = table(work)
    assert t.brain.prompts[-1][-1] == Message("user", "Yes.")
    assert len(t.brain.prompts) == 2


@dataclass
class DraftingBrain(FakeBrain):
    """Drafts all that it will say, so sure of it, long before it commits it."""

    sure: float = 0.99
    draft: str = "Paris is a city. "
    said: str = "Paris is a city. "
    asked: list[Sequence[Message]] = field(default_factory=list)

    async def reply(
        self, messages: Sequence[Message], *, max_tokens: int | None = None, deadline: float | None = None
    ) -> AsyncIterator[FakeProgress]:
        yield FakeProgress("", self.draft, 1, 0, None, (self.sure,) * 4)
        yield FakeProgress(self.said, "", 2, 4, "stop")


@pytest.mark.parametrize(
    ("brain", "spoken", "dropped"),
    [
        (DraftingBrain(), 1, 0),
        (DraftingBrain(sure=0.9), 0, 0),
        (DraftingBrain(said="London is a city. "), 0, 1),
    ],
)
def test_a_draft_that_is_nearly_certain_is_spoken_ahead(brain: DraftingBrain, spoken: int, dropped: int) -> None:
    async def work(t: Table) -> None:
        t.session._brain = brain
        await t.ask(3.0)

    t = table(work)
    (done,) = t.all(events.AnswerDone)
    assert (done.timeline.drafts_spoken, done.timeline.drafts_dropped) == (spoken, dropped)
    assert answers(t) == [brain.said]


def test_the_brain_rests_while_the_first_clause_is_synthesized() -> None:
    t = table(lambda t: t.ask(3.0))
    assert len(t.brain.rested) == 2 and t.brain.rested[0] > 0 and t.brain.rested[1] == 0


def test_a_client_that_cuts_an_answer_of_which_all_was_sent_plays_no_more_of_it() -> None:
    async def work(t: Table) -> None:
        t.brain.words, t.brain.pace = LONG, 0.0
        await t.ask(0.5)
        t.session.truncate(t.all(events.AnswerDone)[0].item.id, 300)
        t.recognizer.text = "Mhm."
        await t.hear(0.3, 0.5)
        await t.hear(3.0, 0.0)

    t = table(work)
    assert t.brain.prompts[-1][-1] == Message("user", "Mhm.")  # spoken over nothing, it is a turn like any other
