"""Whole conversations on a virtual clock, with fakes for the stages."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from tests.voice.tables import Table, table
from voice import events
from voice.history import Item
from voice.session import Refused
from voice.speaking import Settings
from voice.timing import Timing
from voice.turn import TurnRules


def test_a_spoken_question_gets_a_spoken_answer() -> None:
    t = table(lambda t: t.ask(3.0))
    order = [
        type(event).__name__ for _, event in t.happened if not isinstance(event, events.PhaseChanged | events.Drafted)
    ]
    unique = list(dict.fromkeys(order))
    assert unique == [
        "SpeechStarted", "PartialTranscript", "SpeechStopped", "InputCommitted", "FinalTranscript",
        "AnswerStarted", "AnswerText", "AnswerAudio", "AnswerDone",
    ]  # fmt: skip
    assert "".join(e.text for e in t.all(events.AnswerText)) == "The capital of France is Paris."
    assert sum(len(e.samples) for e in t.all(events.AnswerAudio)) == 6 * 2400
    (done,) = t.all(events.AnswerDone)
    assert (done.status, done.reason) == ("completed", None)
    phases = [e.phase for e in t.all(events.PhaseChanged)]
    assert phases == ["user_speaking", "thinking", "answering", "listening"]


def test_the_timeline_is_the_time_that_passed() -> None:
    t = table(lambda t: t.ask(3.0))
    (done,) = t.all(events.AnswerDone)
    stages = done.timeline.stages_ms()
    waited = stages.pop("end_of_turn")
    assert waited == pytest.approx(Timing.shortest_wait_ms, abs=40)
    assert stages["soft_end"] == pytest.approx(Timing.soft_end_ms, abs=40)
    assert stages["first_token"] == pytest.approx(20, abs=1)
    assert stages["first_clause"] == pytest.approx(80, abs=1)  # the fifth word shows that the fourth is whole
    assert done.timeline.latency_ms() == pytest.approx(sum(stages.values()), abs=0.5)
    assert done.timeline.latency_ms() == pytest.approx(waited, abs=1)  # all the work was done within the wait
    assert (done.timeline.guesses, done.timeline.guess_kept) == (1, True)
    assert (done.timeline.steps, done.timeline.tokens, done.timeline.cached_tokens) == (6, 6, 20)


def test_only_the_speech_is_transcribed_not_the_silence_that_ended_it() -> None:
    t = table(lambda t: t.ask())
    assert t.recognizer.heard_s[-1] == pytest.approx(1.1, abs=0.07)


@pytest.mark.parametrize("rate", [8_000, 24_000, 48_000])
def test_a_microphone_may_run_at_any_usual_rate(rate: int) -> None:
    async def work(t: Table) -> None:
        await t.hear(1.0, 0.5, rate)
        await t.hear(2.0, 0.0, rate)

    t = table(work)
    assert t.recognizer.heard_s[-1] == pytest.approx(1.1, abs=0.07)
    assert len(t.all(events.AnswerDone)) == 1


def test_speaking_over_the_answer_stops_it_and_history_keeps_what_was_heard() -> None:
    async def work(t: Table) -> None:
        t.brain.words = ["One", " two", " three", " four.", *(f" word{n}" for n in range(150))]
        t.brain.pace = 0.02
        await t.hear(1.0, 0.5)
        await t.hear(1.8, 0.0)  # the answer is heard from about 1 s into this
        t.brain.words = ["Fine."]
        await t.ask(4.0)

    t = table(work)
    first, second = t.all(events.AnswerDone)
    assert (first.status, first.reason) == ("cancelled", "turn_detected")
    interrupted = t.time_of(events.SpeechStarted, 1)
    assert t.time_of(events.AnswerDone) == interrupted
    assert t.brain.cancelled == 2  # by the interruption, and when the conversation closed
    sent_before = [
        at for at, e in t.happened if isinstance(e, events.AnswerAudio) and e.response_id == first.response_id
    ]
    assert max(sent_before) <= interrupted
    heard = first.item.heard
    assert heard and first.item.text.startswith(heard) and len(heard) < len(first.item.text)
    assert [m.content for m in t.brain.prompts[1] if m.role == "assistant"] == [heard.strip()]
    assert second.status == "completed"


def test_an_answer_that_was_sent_whole_is_still_cut_while_it_plays() -> None:
    async def work(t: Table) -> None:
        t.brain.words = ["Here", " are", " ten", " words", " that", " take", " one", " second", " to", " say."]
        t.brain.pace = 0.0
        await t.hear(1.0, 0.5)
        await t.hear(0.9, 0.0)
        await t.ask(3.0)

    t = table(work)
    assert t.all(events.AnswerDone)[0].status == "completed"
    heard = [m.content for m in t.brain.prompts[1] if m.role == "assistant"]
    assert heard and heard[0] != "Here are ten words that take one second to say."


def test_the_clients_own_count_of_what_was_heard_is_the_one_that_counts() -> None:
    async def work(t: Table) -> None:
        await t.ask(3.0)
        t.session.truncate(t.all(events.AnswerDone)[0].item.id, 410)
        await t.ask(3.0)

    t = table(work)
    assert [m.content for m in t.brain.prompts[1] if m.role == "assistant"] == ["The capital of France"]


def test_going_on_speaking_after_a_pause_gets_one_answer_to_both_parts() -> None:
    async def work(t: Table) -> None:
        t.brain.pace = 0.5
        await t.hear(1.0, 0.5)
        await t.hear(0.7, 0.0)
        await t.hear(1.0, 0.5)
        await t.hear(6.0, 0.0)

    t = table(work)
    assert [e.status for e in t.all(events.AnswerDone)] == ["cancelled", "completed"]
    assert not [e for e in t.all(events.AnswerAudio) if e.response_id == t.all(events.AnswerDone)[0].response_id]
    assert [m.role for m in t.brain.prompts[-1]] == ["system", "user", "user"]


def test_sound_without_words_is_not_answered() -> None:
    async def work(t: Table) -> None:
        t.recognizer.text = ""
        await t.ask()

    t = table(work)
    assert [e.text for e in t.all(events.FinalTranscript)] == [""]
    assert not t.all(events.AnswerStarted)
    assert t.session.state.phase == "listening"


def test_push_to_talk_needs_no_silence() -> None:
    async def work(t: Table) -> None:
        await t.hear(1.0, 0.5)
        t.session.commit()
        t.session.respond()
        await asyncio.sleep(2)

    t = table(work, Settings(detect_turns=False))
    assert not t.all(events.SpeechStarted)
    (done,) = t.all(events.AnswerDone)
    assert done.status == "completed"
    assert t.recognizer.heard_s == [1.0]
    assert [m.role for m in t.brain.prompts[0]] == ["system", "user"]


def test_too_little_audio_cannot_be_committed() -> None:
    async def work(t: Table) -> None:
        await t.hear(0.06, 0.5)
        with pytest.raises(Refused, match="holds 60 ms of audio and at least 100 ms are needed") as refused:
            t.session.commit()
        assert refused.value.code == "input_audio_buffer_commit_empty"
        t.session.clear()
        with pytest.raises(Refused, match="holds 0 ms"):
            t.session.commit()

    table(work, Settings(detect_turns=False))


def test_audio_that_is_never_handed_over_is_bounded() -> None:
    rules = TurnRules(Timing(longest_turn_ms=2000))

    async def work(t: Table) -> None:
        with pytest.raises(Refused, match="at most 2 s: commit or clear") as refused:
            await t.hear(5.0, 0.5)
        assert refused.value.code == "input_audio_buffer_full"

    table(work, Settings(detect_turns=False, rules=rules))


def test_silence_for_an_hour_holds_no_more_audio_than_for_a_minute() -> None:
    async def work(t: Table) -> None:
        for _ in range(3600):
            t.session.append(np.zeros(16_000, np.float32), 16_000)
        assert t.session._input.held_ms < 4000

    table(work)


def test_one_answer_at_a_time() -> None:
    async def work(t: Table) -> None:
        t.session.history.add(Item("q", "user", "Hello", spoken=False))
        t.session.respond()
        with pytest.raises(Refused, match="still in progress"):
            t.session.respond()
        with pytest.raises(Refused, match="no such response"):
            t.session.cancel("resp_other")
        t.session.cancel()
        with pytest.raises(Refused, match="no such response"):
            t.session.cancel()
        t.session.respond()
        await asyncio.sleep(3)

    t = table(work)
    assert [e.status for e in t.all(events.AnswerDone)] == ["cancelled", "completed"]


def test_a_written_answer_is_not_spoken() -> None:
    async def work(t: Table) -> None:
        t.session.respond(Settings(speak=False, max_tokens=3))
        await asyncio.sleep(1)

    t = table(work)
    assert [e.text for e in t.all(events.AnswerText)] == ["The", " capital", " of"]
    assert not t.all(events.AnswerAudio)
    (done,) = t.all(events.AnswerDone)
    assert (done.status, done.reason, done.item.text) == ("incomplete", "max_output_tokens", "The capital of")


def test_drafts_are_shown_and_never_remembered() -> None:
    async def work(t: Table) -> None:
        t.brain.pace = 0.1
        await t.ask(3.0)

    t = table(work)
    assert {e.draft for e in t.all(events.Drafted)} == {"", "…"}
    assert "".join(e.committed for e in t.all(events.Drafted)) == "The capital of France is Paris."
    assert all("…" not in item.text for item in t.session.history.items)


@pytest.mark.parametrize("broken", ["brain", "voice"])
def test_a_stage_that_fails_fails_its_answer_and_the_next_one_works(broken: str) -> None:
    async def work(t: Table) -> None:
        getattr(t, broken).failing = True
        await t.ask(3.0)
        getattr(t, broken).failing = False
        await t.ask(3.0)

    t = table(work)
    assert [(e.status, e.reason) for e in t.all(events.AnswerDone)] == [
        ("failed", f"the {broken} broke"),
        ("completed", None),
    ]


def test_a_turn_that_cannot_be_transcribed_is_said_and_the_next_one_works() -> None:
    async def work(t: Table) -> None:
        t.recognizer.failing = True
        await t.ask()
        t.recognizer.failing = False
        await t.ask(3.0)

    t = table(work)
    assert [e.reason for e in t.all(events.TranscriptionFailed)] == [
        "the turn could not be transcribed: the recognizer broke"
    ]
    assert len(t.all(events.AnswerDone)) == 1


def test_the_instructions_are_read_ahead() -> None:
    async def work(t: Table) -> None:
        t.session.configure(Settings(instructions="Be brief."))

    t = table(work)
    assert [prepared[0].content for prepared in t.brain.prepared][-1] == "Be brief."


def test_closing_in_the_middle_of_an_answer_leaves_nothing_running() -> None:
    async def work(t: Table) -> None:
        t.brain.pace = 10
        await t.ask()
        await t.session.close()
        assert not t.session._tasks

    table(work)


def test_cancelling_an_answer_before_the_words_are_known_keeps_the_words() -> None:
    async def work(t: Table) -> None:
        slow: asyncio.Future[None] = t.loop.create_future()
        real = t.loop.run_in_executor

        async def later(executor: object, function: Any, *arguments: Any) -> Any:
            if getattr(function, "__name__", "") == "final":
                await slow
            return await real(executor, function, *arguments)  # type: ignore[arg-type]

        t.loop.run_in_executor = later  # type: ignore[assignment]
        await t.hear(1.0, 0.5)
        t.session.commit()
        t.session.respond()
        await asyncio.sleep(0.05)
        t.session.cancel()
        slow.set_result(None)
        await asyncio.sleep(0.05)

    t = table(work, Settings(detect_turns=False))
    assert [e.text for e in t.all(events.FinalTranscript)] == ["What is the capital of France?"]
    assert t.session.history.items[0].text == "What is the capital of France?"


def test_after_push_to_talk_the_audio_clock_is_still_right() -> None:
    async def work(t: Table) -> None:
        t.session.configure(Settings(detect_turns=False))
        await t.hear(5.0, 0.0)
        t.session.configure(Settings())
        await t.ask(3.0)

    t = table(work)
    assert t.all(events.SpeechStarted)[0].audio_start_ms == pytest.approx(4700, abs=40)
    assert t.all(events.SpeechStopped)[0].audio_end_ms == pytest.approx(6000, abs=40)
    assert t.recognizer.heard_s[-1] == pytest.approx(1.4, abs=0.07)


def test_nothing_of_a_stopped_answer_is_sent_any_more() -> None:
    async def work(t: Table) -> None:
        await t.hear(1.0, 0.5)
        t.brain.pace = 0.1
        while not t.all(events.AnswerText):
            await t.hear(0.02, 0.0)
        t.session.cancel()
        t.session.respond()
        await asyncio.sleep(3)

    t = table(work)
    (first, second) = [e.response_id for e in t.all(events.AnswerDone)]
    kinds = [getattr(e, "response_id", None) for _, e in t.happened]
    assert first not in kinds[kinds.index(second) :]


def test_speech_that_goes_on_right_after_the_turn_ended_loses_nothing() -> None:
    async def work(t: Table) -> None:
        t.brain.pace = 5
        await t.hear(1.0, 0.5)
        await t.hear(0.6, 0.0)
        # One large block, as some clients send: the rest of the silence, then speech.
        block = np.concatenate((np.zeros(2400), np.full(1600, 0.5))).astype(np.float32)
        t.session.append(block, 16_000)
        await t.hear(1.0, 0.5)
        await t.hear(1.0, 0.0)

    t = table(work)
    assert len(t.all(events.FinalTranscript)) == 2
    assert t.recognizer.heard_s[-1] >= 1.1 + 0.3 + 0.1 - 0.07  # the speech, its prefix and its tail


def test_an_answer_is_not_sent_minutes_ahead() -> None:
    async def work(t: Table) -> None:
        t.brain.words = [f" word{n}." for n in range(900)]
        t.brain.pace = 0.0
        await t.ask(1.0)
        await asyncio.sleep(5)

    t = table(work)
    sent = sum(len(e.samples) for e in t.all(events.AnswerAudio)) / 24_000
    assert 20 < sent < 45


def test_turns_that_come_faster_than_they_are_transcribed_are_held_back() -> None:
    async def work(t: Table) -> None:
        never: asyncio.Future[None] = t.loop.create_future()
        t.loop.run_in_executor = lambda *_: never  # type: ignore[assignment, method-assign, return-value]
        for _ in range(4):
            await t.hear(0.2, 0.5)
            t.session.commit()
        await t.hear(0.2, 0.5)
        with pytest.raises(Refused, match="4 turns still wait to be transcribed"):
            t.session.commit()

    table(work, Settings(detect_turns=False))
