"""The turn machine, driven by 32 ms windows that hold speech or silence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.voice.turn_driver import ENDPOINTER_RULES, RULES, TIMING, Driver, to_speculation
from voice.audio.vad import WINDOW_MS
from voice.timing import Timing
from voice.turn_actions import (
    BeginTurn,
    CancelSpeculation,
    CommitSilence,
    DropTurn,
    EndTurn,
    PauseResponse,
    ResumeResponse,
    StartResponse,
    StartSpeculation,
    StopResponse,
)
from voice.turn_machine import (
    Assistant,
    Cleared,
    Committed,
    EndpointDecision,
    FirstSent,
    PlaybackDone,
    ResponseCancelled,
    ResponseReady,
    ResponseRequested,
    TranscriptReady,
    TurnRules,
    User,
)


def test_in_silence_the_machine_listens() -> None:
    driver = Driver()
    assert driver.silence(10_000) == []
    assert driver.state.phase == "listening"


def test_a_turn_begins_at_the_onset_of_speech_not_at_its_detection() -> None:
    driver = Driver()
    driver.silence(320)
    assert driver.speech(320) == [BeginTurn(1, 320)]
    assert driver.state.phase == "user_speaking"


def test_a_click_is_not_speech() -> None:
    driver = Driver()
    for _ in range(20):
        assert driver.speech(WINDOW_MS) == []
        assert driver.silence(TIMING.onset_gap_ms + 2 * WINDOW_MS) == []


def test_silence_after_speech_ends_the_turn_at_the_last_voiced_window() -> None:
    driver = Driver()
    driver.speech(640)
    assert driver.silence(TIMING.end_silence_ms - WINDOW_MS) == []
    assert driver.silence(WINDOW_MS) == [EndTurn(1, 640)]
    assert driver.state.phase == "thinking"


def test_a_pause_inside_a_sentence_does_not_end_the_turn() -> None:
    driver = Driver()
    driver.speech(640)
    assert driver.silence(TIMING.end_silence_ms - 2 * WINDOW_MS) == []
    assert driver.speech(640) == []
    assert EndTurn(1, driver.now) in driver.silence(1000)


def test_soft_speech_keeps_a_turn_going_but_does_not_begin_one() -> None:
    soft = RULES.threshold - 0.1
    driver = Driver()
    assert driver.hear(2000, soft) == []
    driver.speech(320)
    assert driver.hear(2000, soft) == []
    assert driver.state.user is User.SPEAKING


def test_continuous_sound_ends_the_turn_at_the_maximum_length() -> None:
    driver = Driver(replace(RULES, timing=Timing(max_turn_ms=5000)))
    (first, second, *_) = driver.speech(5100)
    assert (first, second) == (BeginTurn(1, 0), EndTurn(1, 5024))


def test_a_turn_with_words_gets_a_response_and_one_without_does_not() -> None:
    assert Driver().to_response().state.phase == "answering"
    driver = Driver()
    driver.speech(320)
    driver.silence(600)
    assert driver.apply(TranscriptReady(1, has_words=False)) == []
    assert driver.state.phase == "listening"


def test_after_playback_the_machine_listens() -> None:
    driver = Driver().to_response()
    assert driver.apply(PlaybackDone()) == []
    assert driver.state.phase == "listening"


def test_speech_over_the_response_pauses_it_at_once() -> None:
    driver = Driver().to_response()
    driver.apply(FirstSent())
    start = driver.now
    assert driver.speech(TIMING.barge_in_ms - WINDOW_MS) == []
    assert driver.speech(WINDOW_MS) == [BeginTurn(2, start), PauseResponse()]
    assert driver.now - start <= 160


def test_a_response_with_no_audio_sent_is_stopped_instead_of_paused() -> None:
    driver = Driver().to_response()
    start = driver.now
    assert driver.speech(160) == [BeginTurn(2, start), StopResponse("turn_detected")]


def test_a_sound_shorter_than_the_barge_in_time_does_not_pause_the_response() -> None:
    driver = Driver().to_response()
    assert driver.speech(TIMING.barge_in_ms - WINDOW_MS) == []
    assert driver.silence(1000) == []
    assert driver.state.phase == "answering"


def test_an_interruption_is_a_turn_with_a_response_of_its_own() -> None:
    driver = Driver().to_response()
    driver.speech(640)
    assert driver.silence(512) == [EndTurn(2, driver.now - 512)]
    assert driver.apply(TranscriptReady(2, has_words=True)) == [StartResponse()]


def test_speech_during_transcription_prevents_the_response() -> None:
    driver = Driver()
    driver.speech(640)
    driver.silence(512)
    assert driver.speech(640) == [BeginTurn(2, 1152)]
    assert driver.apply(TranscriptReady(1, has_words=True)) == []
    assert driver.state.phase == "user_speaking"


def test_without_interrupt_response_speech_is_still_a_turn() -> None:
    driver = Driver(replace(RULES, interrupt_response=False)).to_response()
    start = driver.now
    assert driver.speech(320) == [BeginTurn(2, start)]
    driver.silence(512)
    assert driver.state.assistant is Assistant.RESPONDING


def test_without_interrupt_response_a_turn_over_the_response_is_answered_after_it() -> None:
    driver = Driver(replace(RULES, interrupt_response=False)).to_response()
    driver.speech(320)
    driver.silence(512)
    assert driver.apply(TranscriptReady(2, has_words=True)) == []
    assert driver.apply(PlaybackDone()) == [StartResponse()]


def test_a_noise_during_transcription_does_not_lose_the_question() -> None:
    driver = Driver()
    driver.speech(640)
    driver.silence(512)
    assert driver.speech(96) == [BeginTurn(2, 1152)]
    assert driver.apply(TranscriptReady(1, has_words=True)) == []
    assert driver.silence(600) == [EndTurn(2, 1248)]
    assert driver.apply(TranscriptReady(2, has_words=False)) == [StartResponse()]


@pytest.mark.parametrize("first", [1, 2])
def test_two_turns_that_are_transcribed_at_the_same_time_get_one_response(first: int) -> None:
    driver = Driver()
    for _ in range(2):
        driver.speech(640)
        driver.silence(512)
    assert driver.apply(TranscriptReady(first, has_words=True)) == []
    assert driver.apply(TranscriptReady(3 - first, has_words=True)) == [StartResponse()]
    assert driver.apply(PlaybackDone()) == []
    assert driver.state.silent


def test_a_noise_before_the_first_audio_of_the_response_does_not_lose_it() -> None:
    driver = Driver().to_response()
    driver.speech(160)
    driver.silence(600)
    assert driver.apply(TranscriptReady(2, has_words=False)) == [StartResponse()]
    driver.apply(FirstSent())
    driver.speech(160)
    driver.silence(600)
    assert driver.apply(TranscriptReady(3, has_words=False)) == [ResumeResponse()]  # the user heard some of it


def test_clearing_a_noise_leaves_the_question_to_be_answered() -> None:
    driver = Driver(replace(RULES, interrupt_response=False))
    driver.speech(640)
    driver.silence(512)
    driver.speech(96)
    driver.apply(TranscriptReady(1, has_words=True))
    assert driver.apply(Cleared()) == [DropTurn(), StartResponse()]


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.15])
def test_silence_ends_a_turn_at_any_threshold(threshold: float) -> None:
    driver = Driver(replace(RULES, threshold=max(threshold, 0.02)))
    driver.speech(320)
    assert driver.hear(600, 0.005) == [EndTurn(1, 320)]


def test_without_create_response_the_client_requests_the_response() -> None:
    driver = Driver(replace(RULES, create_response=False))
    driver.speech(320)
    driver.silence(512)
    assert driver.apply(TranscriptReady(1, has_words=True)) == []
    assert driver.apply(ResponseRequested()) == [StartResponse()]


def test_a_commit_ends_the_turn_and_the_response_waits_for_a_request() -> None:
    driver = Driver()
    assert driver.apply(Committed(1500)) == [EndTurn(1, 1500, manual=True)]
    assert driver.apply(ResponseRequested()) == [StartResponse()]


def test_a_commit_during_detected_speech_ends_that_turn() -> None:
    driver = Driver()
    driver.speech(320)
    assert driver.apply(Committed(320)) == [EndTurn(1, 320, manual=True)]
    assert driver.state.user is User.QUIET


def test_clearing_drops_the_turn_in_progress() -> None:
    driver = Driver()
    driver.speech(320)
    assert driver.apply(Cleared()) == [DropTurn()]
    assert driver.apply(Cleared()) == []
    assert driver.silence(1000) == []


def test_cancelling_stops_a_response_and_nothing_else() -> None:
    driver = Driver().to_response()
    assert driver.apply(ResponseCancelled()) == [StopResponse("client_cancelled")]
    assert driver.apply(ResponseCancelled()) == []
    assert driver.state.phase == "listening"


@pytest.mark.parametrize("silence", [200, 300, 800, 2000])
def test_the_turn_ends_after_the_configured_silence(silence: int) -> None:
    driver = Driver(replace(RULES, timing=Timing(end_silence_ms=silence)))
    driver.speech(320)
    (ended,) = driver.silence(silence)
    assert isinstance(ended, EndTurn)
    assert driver.now - ended.at_ms < silence + WINDOW_MS


def test_a_short_silence_starts_a_speculation_and_speech_cancels_it() -> None:
    driver = Driver(ENDPOINTER_RULES, with_speculations=True)
    driver.speech(640)
    assert driver.silence(TIMING.soft_end_ms - WINDOW_MS) == []
    assert driver.silence(WINDOW_MS) == [StartSpeculation(1, 640)]
    assert driver.silence(WINDOW_MS) == []
    assert driver.speech(TIMING.resume_ms) == [CancelSpeculation(driver.now - TIMING.resume_ms)]
    assert driver.speech(320) == []
    assert driver.silence(TIMING.soft_end_ms) == [StartSpeculation(2, driver.now - TIMING.soft_end_ms)]


def test_a_click_neither_cancels_a_speculation_nor_lengthens_the_wait() -> None:
    driver = to_speculation()
    driver.apply(EndpointDecision(1, 400))
    assert driver.speech(WINDOW_MS) == []
    assert EndTurn(1, 640) in driver.silence(400 - TIMING.soft_end_ms - WINDOW_MS)


@pytest.mark.parametrize("wait", [250, 400, 700, 1200])
def test_the_endpointer_decides_how_long_to_wait(wait: int) -> None:
    driver = to_speculation()
    assert driver.apply(EndpointDecision(1, wait)) == []
    driver.silence(wait - 2 * WINDOW_MS - TIMING.soft_end_ms)
    assert driver.state.user is User.SPEAKING
    assert driver.silence(3 * WINDOW_MS) == [EndTurn(1, 640)]


def test_a_late_endpoint_decision_ends_the_turn_at_once() -> None:
    driver = to_speculation()
    driver.silence(320)
    assert driver.apply(EndpointDecision(1, 250)) == [EndTurn(1, 640)]


def test_the_turn_does_not_end_before_the_response_is_ready() -> None:
    driver = to_speculation()
    driver.apply(EndpointDecision(1, 250, response_pending=True))
    assert driver.silence(320) == []  # longer than the wait, but there is no response to play yet
    assert driver.apply(ResponseReady(1)) == [EndTurn(1, 640)]
    early = to_speculation()
    assert early.apply(ResponseReady(1)) == []
    assert early.apply(EndpointDecision(1, 250, response_pending=True)) == []
    assert early.silence(250 - TIMING.soft_end_ms) == [EndTurn(1, 640)]


def test_a_user_who_continues_before_the_response_is_ready_is_not_cut_off() -> None:
    driver = to_speculation()
    driver.apply(EndpointDecision(1, 250, response_pending=True))
    driver.silence(320)
    assert [type(action) for action in driver.speech(320)] == [CancelSpeculation]
    assert driver.apply(ResponseReady(1)) == []  # a response to half a sentence
    driver.silence(TIMING.soft_end_ms)
    assert driver.apply(ResponseReady(1)) == []
    driver.apply(EndpointDecision(2, 250, response_pending=True))
    assert driver.silence(320) == []


def test_a_turn_does_not_end_while_the_next_word_may_have_begun() -> None:
    driver = to_speculation()
    assert driver.speech(WINDOW_MS) == driver.apply(EndpointDecision(1, TIMING.soft_end_ms)) == []
    assert replace(driver).silence(WINDOW_MS) == [EndTurn(1, 640)]
    assert driver.speech(WINDOW_MS) == [CancelSpeculation(driver.now - TIMING.resume_ms)]


def test_a_slow_response_does_not_keep_the_turn_open_beyond_the_longest_wait() -> None:
    driver = to_speculation()
    driver.apply(EndpointDecision(1, 250, response_pending=True))
    assert EndTurn(1, 640) in driver.silence(TIMING.longest_wait_ms)
    assert driver.apply(ResponseReady(1)) == []
    patient = to_speculation()
    patient.apply(EndpointDecision(1, 1000, response_pending=True))
    patient.apply(ResponseReady(1))
    assert patient.silence(TIMING.longest_wait_ms) == []


def test_an_endpoint_decision_on_an_older_speculation_is_ignored() -> None:
    driver = to_speculation()
    driver.speech(320)
    driver.silence(TIMING.soft_end_ms)
    assert driver.apply(EndpointDecision(1, 0)) == []
    assert driver.state.user is User.SPEAKING


def test_without_an_endpoint_decision_the_turn_ends_at_the_longest_wait() -> None:
    driver = to_speculation()
    assert driver.silence(TIMING.longest_wait_ms) == [EndTurn(1, 640)]
    assert driver.now - 640 <= TIMING.longest_wait_ms + TIMING.soft_end_ms + 2 * WINDOW_MS


def test_after_a_backchannel_the_response_resumes() -> None:
    driver = to_speculation(over_response=True)
    (ended,) = driver.apply(EndpointDecision(driver.state.revision, TIMING.soft_end_ms, backchannel=True))
    assert isinstance(ended, EndTurn)
    assert driver.apply(TranscriptReady(2, has_words=True, backchannel=True)) == [ResumeResponse()]
    assert driver.state.phase == "answering"


def test_after_a_sound_without_words_the_response_resumes() -> None:
    driver = to_speculation(over_response=True)
    driver.silence(TIMING.longest_wait_ms)
    assert driver.apply(TranscriptReady(2, has_words=False)) == [ResumeResponse()]


def test_words_over_the_response_stop_it_before_the_turn_is_over() -> None:
    driver = to_speculation(over_response=True)
    assert driver.apply(EndpointDecision(driver.state.revision, 700)) == [StopResponse("turn_detected")]
    assert driver.state.user is User.SPEAKING


def test_speech_longer_than_a_backchannel_stops_the_response() -> None:
    driver = Driver(ENDPOINTER_RULES).to_response()
    driver.apply(FirstSent())
    assert StopResponse("turn_detected") not in driver.speech(TIMING.backchannel_ms - WINDOW_MS)
    assert driver.speech(2 * WINDOW_MS) == [StopResponse("turn_detected")]


def test_silence_after_a_response_is_a_turn_after_the_idle_timeout() -> None:
    driver = Driver(TurnRules(silence_only=True, idle_timeout_ms=5000)).to_response()
    driver.apply(FirstSent())
    driver.apply(PlaybackDone())
    idle_since = driver.now
    assert driver.silence(5000 - 2 * WINDOW_MS) == []
    actions = driver.silence(4 * WINDOW_MS)
    assert actions[1:] == [StartResponse()]
    assert isinstance(actions[0], CommitSilence) and actions[0].start_ms == idle_since
    assert actions[0].end_ms - idle_since >= 5000
    assert driver.silence(10_000) == []  # the next timeout begins when this response has been played


@pytest.mark.parametrize("begin", [True, False])
def test_the_idle_timeout_waits_for_a_response_and_ends_when_the_user_speaks(begin: bool) -> None:
    driver = Driver(TurnRules(silence_only=True, idle_timeout_ms=5000))
    if begin:
        driver.to_response()
        driver.apply(PlaybackDone())
        driver.speech(640)
    assert not any(isinstance(action, CommitSilence) for action in driver.silence(20_000))


def test_a_response_that_is_requested_while_the_user_speaks_starts_when_they_have_finished() -> None:
    driver = to_speculation(over_response=True)
    assert driver.apply(ResponseRequested()) == []
    driver.silence(TIMING.longest_wait_ms)
    assert driver.apply(TranscriptReady(2, has_words=False)) == [StopResponse("turn_detected"), StartResponse()]


def test_a_response_that_is_requested_while_another_is_played_follows_it() -> None:
    driver = Driver(ENDPOINTER_RULES).to_response()
    assert driver.apply(ResponseRequested()) == [StartResponse()]


def test_a_paused_response_can_be_cancelled_and_resumed() -> None:
    driver = to_speculation(over_response=True)
    assert driver.apply(ResponseCancelled()) == [StopResponse("client_cancelled")]
    driver = to_speculation(over_response=True)
    assert driver.apply(Cleared()) == [CancelSpeculation(), DropTurn(), ResumeResponse()]


EVENTS = st.one_of(
    st.tuples(st.just("hear"), st.sampled_from([0.0, 0.4, 0.9]), st.integers(1, 40)),
    st.sampled_from(
        [
            ResponseRequested(),
            ResponseCancelled(),
            PlaybackDone(),
            Cleared(),
            FirstSent(),
            "transcript",
            "backchannel",
            "decision",
            "decision while response pending",
            "ready",
            "stale ready",
            "commit",
        ]
    ).map(lambda event: ("event", event, 0)),
)


@given(st.lists(EVENTS, max_size=60), st.booleans(), st.booleans(), st.booleans())
def test_any_sequence_of_events_keeps_turns_and_responses_in_order(
    events: list[tuple[str, object, int]], create: bool, interrupt: bool, silence_only: bool
) -> None:
    rules = TurnRules(create_response=create, interrupt_response=interrupt, silence_only=silence_only)
    driver = Driver(rules, with_speculations=True)
    open_turn, last_turn, responding, speculating, paused = None, 0, False, False, False
    for kind, event, count in events:
        if kind == "hear":
            actions = driver.hear(count * WINDOW_MS, float(event))  # type: ignore[arg-type]
        elif event in ("transcript", "backchannel"):
            pending = max(driver.state.transcribing, default=0)
            transcript = TranscriptReady(pending, has_words=True, backchannel=event == "backchannel")
            actions = driver.apply(transcript) if pending else []
        elif event in ("decision", "decision while response pending"):
            actions = driver.apply(EndpointDecision(driver.state.revision, 250, response_pending=event != "decision"))
        elif event in ("ready", "stale ready"):
            actions = driver.apply(ResponseReady(driver.state.revision - (event != "ready")))
        elif event == "commit":
            actions = driver.apply(Committed(driver.now))
        else:
            actions = driver.apply(event)  # type: ignore[arg-type]
        for action in actions:
            match action:
                case StartSpeculation():
                    assert open_turn is not None and not speculating
                    speculating = True
                case CancelSpeculation():
                    assert speculating
                    speculating = False
                case PauseResponse():
                    assert responding and not paused
                    paused = True
                case ResumeResponse():
                    assert paused
                    paused = False
                case BeginTurn(turn, at_ms):
                    assert open_turn is None and turn == last_turn + 1 and at_ms <= driver.now
                    open_turn = turn
                case EndTurn(turn, at_ms, manual):
                    assert turn == open_turn or (manual and open_turn is None)
                    assert at_ms <= driver.now
                    open_turn, last_turn, speculating = None, turn, False
                case DropTurn():
                    assert open_turn is not None
                    last_turn, open_turn = open_turn, None
                case StartResponse():
                    assert not paused
                    responding = True
                case StopResponse():
                    assert responding
                    responding = paused = False
        if event == PlaybackDone() and StartResponse() not in actions:
            responding = paused = False
        assert (driver.state.user is User.SPEAKING) == (open_turn is not None)
        assert speculating == driver.state.speculating
        assert paused == (driver.state.assistant is Assistant.PAUSED)
        assert responding == (driver.state.assistant in (Assistant.RESPONDING, Assistant.PAUSED))
