"""Generation, early synthesis and sending of a response, in a session with fake models."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from chat.types import Ask, Message
from tests.fakes import FakeLanguageModel, FakeProgress
from tests.voice.session_harness import SessionHarness, response_texts, run_session
from voice import events
from voice.history import Item
from voice.playback import SessionSettings
from voice.response_options import ResponseOptions
from voice.response_request import ResponseRequest


@dataclass
class DraftingLanguageModel(FakeLanguageModel):
    """Drafts `draft`, a token for each word with probability `confidence`, then commits `text`."""

    confidence: tuple[float, ...] = (0.99, 0.99, 0.99, 0.99)
    draft: str = "Paris is a city. "
    text: str = "Paris is a city. "

    async def reply(self, ask: Ask) -> AsyncIterator[FakeProgress]:
        ends = tuple(match.end() for match in re.finditer(r"\S+ ?", self.draft))
        yield FakeProgress("", self.draft, 1, 0, None, self.confidence, ends, "diffusion", len(ends))
        yield FakeProgress(self.text, "", 2, 4, "stop", drafts_shown=len(ends), drafts_kept=4)


@pytest.mark.parametrize(
    ("language_model", "spoken", "dropped"),
    [
        (DraftingLanguageModel(), 1, 0),
        (DraftingLanguageModel(confidence=(0.9, 0.99, 0.99, 0.99)), 0, 0),
        (DraftingLanguageModel(confidence=(0.98, 0.98, 0.98, 0.98)), 0, 0),
        (DraftingLanguageModel(draft="Paris is a city. It is ", confidence=(*[0.99] * 4, 0.4, 0.3)), 1, 0),
        (DraftingLanguageModel(text="London is a city. "), 0, 1),
    ],
)
def test_a_nearly_certain_draft_is_synthesized_early(
    language_model: DraftingLanguageModel, spoken: int, dropped: int
) -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.session._planner.language_model = language_model
        await harness.ask_question(3.0)

    harness = run_session(scenario)
    (done,) = harness.events_of(events.ResponseDone)
    assert (done.metrics.drafts_spoken, done.metrics.drafts_dropped) == (spoken, dropped)
    shown = len(language_model.draft.split())
    assert (done.metrics.drafted_by, done.metrics.drafts_shown, done.metrics.drafts_kept) == (["diffusion"], shown, 4)
    assert response_texts(harness) == [language_model.text]


def test_the_language_model_pauses_while_the_first_clause_is_synthesized() -> None:
    harness = run_session(lambda harness: harness.ask_question(3.0))
    start, end, *_ = harness.language_model.pauses
    assert start > 0 and end == 0


@pytest.mark.parametrize(("seconds_per_word", "waited_for"), [(0.01, 1), (0.2, 3)])
def test_the_language_model_pauses_for_later_clauses_that_are_nearly_late(
    seconds_per_word: float, waited_for: int
) -> None:
    """If words come quickly, all three clauses are synthesized before the turn ends: only the first is waited for."""

    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.words = ["Yes it most ", "certainly ", "is today. ", "It ", "rains ", "there."]
        harness.language_model.seconds_per_word = seconds_per_word
        await harness.ask_question(4.0)

    harness = run_session(scenario)
    assert harness.voice.clauses == ["Yes it most", "certainly is today.", "It rains there."]
    assert harness.language_model.pauses == [0.3, 0] * waited_for


def test_a_written_response_is_not_spoken() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.session.respond(ResponseRequest(SessionSettings(speak=False, max_tokens=3)))
        await asyncio.sleep(1)

    harness = run_session(scenario)
    assert [e.text for e in harness.events_of(events.ResponseText)] == ["The", " capital", " of"]
    assert not harness.events_of(events.ResponseAudio)
    (done,) = harness.events_of(events.ResponseDone)
    assert (done.status, done.reason, done.item.text) == ("incomplete", "max_output_tokens", "The capital of")


@pytest.mark.parametrize("speak", [True, False])
def test_functions_are_an_assistants_whether_the_user_speaks_or_writes(*, speak: bool) -> None:
    assert ResponseOptions(speak=speak).ask([Message("user", "Lock the door")]).assistant


def test_drafts_are_shown_and_never_remembered() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.seconds_per_word = 0.1
        await harness.ask_question(3.0)

    harness = run_session(scenario)
    assert {e.draft for e in harness.events_of(events.ResponseDraft)} == {"", "…"}
    assert "".join(e.committed for e in harness.events_of(events.ResponseDraft)) == "The capital of France is Paris."
    assert all("…" not in item.text for item in harness.session.history.items)


@pytest.mark.parametrize("broken", ["language_model", "voice"])
def test_a_model_that_fails_fails_its_response_and_the_next_one_works(broken: str) -> None:
    async def scenario(harness: SessionHarness) -> None:
        getattr(harness, broken).failing = True
        await harness.ask_question(3.0)
        getattr(harness, broken).failing = False
        await harness.ask_question(3.0)

    harness = run_session(scenario)
    assert [(e.status, e.reason) for e in harness.events_of(events.ResponseDone)] == [
        ("failed", f"the {broken.replace('_', ' ')} broke"),
        ("completed", None),
    ]


def test_a_response_is_not_sent_minutes_ahead() -> None:
    async def scenario(harness: SessionHarness) -> None:
        harness.language_model.words = [f" word{n}" for n in range(900)]
        harness.language_model.seconds_per_word = 0.0
        harness.session.history.add(Item("item_1", "user", "Tell me a long story.", complete=True))
        harness.session.respond()
        await asyncio.sleep(6)

    harness = run_session(scenario)
    sent_s = sum(len(e.samples) for e in harness.events_of(events.ResponseAudio)) / 24_000
    assert 20 < sent_s < 45


def test_nothing_of_a_stopped_response_is_sent() -> None:
    async def scenario(harness: SessionHarness) -> None:
        await harness.hear(1.0, 0.5)
        harness.language_model.seconds_per_word = 0.1
        while not harness.events_of(events.ResponseText):
            await harness.hear(0.02, 0.0)
        harness.session.cancel()
        harness.session.respond()
        await asyncio.sleep(3)

    harness = run_session(scenario)
    first, second = [e.response_id for e in harness.events_of(events.ResponseDone)]
    ids = [getattr(e, "response_id", None) for _, e in harness.log]
    assert first not in ids[ids.index(second) :]
