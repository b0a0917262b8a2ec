"""The turn machine on a virtual clock: windows of 32 ms, loud or not."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from voice.timing import Timing
from voice.turn import (
    Action,
    AnswerUnwanted,
    AnswerWanted,
    Assistant,
    BeginTurn,
    DropGuess,
    DropTurn,
    EndTurn,
    Event,
    FirstSound,
    Guess,
    HandedOver,
    HoldAnswer,
    Judged,
    PlayedOut,
    Ready,
    ResumeAnswer,
    StartAnswer,
    StopAnswer,
    TurnRules,
    TurnState,
    Understood,
    User,
    Withdrawn,
    step,
)
from voice.vad import WINDOW_MS, Frame

RULES = TurnRules(by_silence=True)
JUDGING = TurnRules()
TIMING = RULES.timing


@dataclass
class Talk:
    """Drives the machine along the audio clock. Guesses are left out of what it reports unless asked for."""

    rules: TurnRules = RULES
    guesses: bool = False
    state: TurnState = field(default_factory=TurnState)
    now: int = 0

    def tell(self, event: Event) -> list[Action]:
        self.state, actions = step(self.state, event, self.rules)
        return actions

    def hear(self, ms: int, probability: float) -> list[Action]:
        """`ms` of sound, to the next whole window."""
        actions: list[Action] = []
        for _ in range(-(-ms // WINDOW_MS)):
            actions += self.tell(Frame(probability, self.now, self.now + WINDOW_MS))
            self.now += WINDOW_MS
        return actions if self.guesses else [a for a in actions if not isinstance(a, Guess | DropGuess)]

    def speech(self, ms: int) -> list[Action]:
        return self.hear(ms, 0.9)

    def silence(self, ms: int) -> list[Action]:
        return self.hear(ms, 0.01)

    def answered(self) -> Talk:
        """Up to the assistant's answer."""
        self.speech(640)
        self.silence(self.rules.wait_ms)
        assert self.tell(Understood(1, said=True)) == [StartAnswer()]
        return self


def test_silence_is_listening() -> None:
    talk = Talk()
    assert talk.silence(10_000) == []
    assert talk.state.phase == "listening"


def test_speech_begins_a_turn_where_it_began_not_where_it_was_noticed() -> None:
    talk = Talk()
    talk.silence(320)
    assert talk.speech(320) == [BeginTurn(1, 320)]
    assert talk.state.phase == "user_speaking"


def test_a_click_is_not_speech() -> None:
    talk = Talk()
    for _ in range(20):
        assert talk.speech(WINDOW_MS) == []
        assert talk.silence(TIMING.onset_gap_ms + 2 * WINDOW_MS) == []


def test_silence_after_speech_ends_the_turn_at_the_last_voiced_window() -> None:
    talk = Talk()
    talk.speech(640)
    assert talk.silence(TIMING.end_silence_ms - WINDOW_MS) == []
    assert talk.silence(WINDOW_MS) == [EndTurn(1, 640)]
    assert talk.state.phase == "thinking"


def test_a_pause_inside_a_sentence_does_not_end_the_turn() -> None:
    talk = Talk()
    talk.speech(640)
    assert talk.silence(TIMING.end_silence_ms - 2 * WINDOW_MS) == []
    assert talk.speech(640) == []
    assert EndTurn(1, talk.now) in talk.silence(1000)


def test_soft_speech_keeps_a_turn_going_but_does_not_begin_one() -> None:
    soft = RULES.threshold - 0.1
    talk = Talk()
    assert talk.hear(2000, soft) == []
    talk.speech(320)
    assert talk.hear(2000, soft) == []
    assert talk.state.user is User.SPEAKING


def test_an_endless_sound_ends_the_turn_at_its_limit() -> None:
    talk = Talk(replace(RULES, timing=Timing(longest_turn_ms=5000)))
    (begun, ended, *_) = talk.speech(5100)
    assert (begun, ended) == (BeginTurn(1, 0), EndTurn(1, 5024))


def test_words_are_answered_and_no_words_are_not() -> None:
    assert Talk().answered().state.phase == "answering"
    talk = Talk()
    talk.speech(320)
    talk.silence(600)
    assert talk.tell(Understood(1, said=False)) == []
    assert talk.state.phase == "listening"


def test_after_the_answer_was_played_the_machine_listens() -> None:
    talk = Talk().answered()
    assert talk.tell(PlayedOut()) == []
    assert talk.state.phase == "listening"


def test_the_user_speaking_over_the_answer_stops_it_at_once() -> None:
    talk = Talk().answered()
    talk.tell(FirstSound())
    began = talk.now
    assert talk.speech(TIMING.barge_in_ms - WINDOW_MS) == []
    assert talk.speech(WINDOW_MS) == [BeginTurn(2, began), HoldAnswer()]
    assert talk.now - began <= 160


def test_an_answer_that_nobody_has_heard_yet_is_not_held_back_but_given_up() -> None:
    talk = Talk().answered()
    began = talk.now
    assert talk.speech(160) == [BeginTurn(2, began), StopAnswer("turn_detected")]


def test_a_cough_shorter_than_a_word_does_not_stop_the_answer() -> None:
    talk = Talk().answered()
    assert talk.speech(TIMING.barge_in_ms - WINDOW_MS) == []
    assert talk.silence(1000) == []
    assert talk.state.phase == "answering"


def test_an_interruption_is_a_turn_like_any_other() -> None:
    talk = Talk().answered()
    talk.speech(640)
    assert talk.silence(512) == [EndTurn(2, talk.now - 512)]
    assert talk.tell(Understood(2, said=True)) == [StartAnswer()]


def test_speech_that_goes_on_while_the_words_are_found_takes_the_answer_back() -> None:
    talk = Talk()
    talk.speech(640)
    talk.silence(512)
    assert talk.speech(640) == [BeginTurn(2, 1152)]
    assert talk.tell(Understood(1, said=True)) == []
    assert talk.state.phase == "user_speaking"


def test_where_answers_are_not_interrupted_speech_is_still_a_turn() -> None:
    talk = Talk(replace(RULES, interrupt_response=False)).answered()
    began = talk.now
    assert talk.speech(320) == [BeginTurn(2, began)]
    talk.silence(512)
    assert talk.state.assistant is Assistant.ANSWERING


def test_what_is_said_over_an_answer_that_goes_on_is_answered_after_it() -> None:
    talk = Talk(replace(RULES, interrupt_response=False)).answered()
    talk.speech(320)
    talk.silence(512)
    assert talk.tell(Understood(2, said=True)) == []
    assert talk.tell(PlayedOut()) == [StartAnswer()]


def test_a_noise_while_the_words_are_found_out_does_not_swallow_the_question() -> None:
    talk = Talk()
    talk.speech(640)
    talk.silence(512)
    assert talk.speech(96) == [BeginTurn(2, 1152)]
    assert talk.tell(Understood(1, said=True)) == []
    assert talk.silence(600) == [EndTurn(2, 1248)]
    assert talk.tell(Understood(2, said=False)) == [StartAnswer()]


def test_a_noise_before_the_first_sound_of_the_answer_does_not_swallow_it() -> None:
    talk = Talk().answered()
    talk.speech(160)
    talk.silence(600)
    assert talk.tell(Understood(2, said=False)) == [StartAnswer()]
    talk.tell(FirstSound())
    talk.speech(160)
    talk.silence(600)
    assert talk.tell(Understood(3, said=False)) == [ResumeAnswer()]  # some of it was heard: it goes on from there


def test_taking_back_a_noise_leaves_the_question_to_be_answered() -> None:
    talk = Talk(replace(RULES, interrupt_response=False))
    talk.speech(640)
    talk.silence(512)
    talk.speech(96)
    talk.tell(Understood(1, said=True))
    assert talk.tell(Withdrawn()) == [DropTurn(), StartAnswer()]


@pytest.mark.parametrize("threshold", [0.0, 0.1, 0.15])
def test_silence_ends_a_turn_at_any_threshold(threshold: float) -> None:
    talk = Talk(replace(RULES, threshold=max(threshold, 0.02)))
    talk.speech(320)
    assert talk.hear(600, 0.005) == [EndTurn(1, 320)]


def test_where_answers_are_not_created_the_client_asks() -> None:
    talk = Talk(replace(RULES, create_response=False))
    talk.speech(320)
    talk.silence(512)
    assert talk.tell(Understood(1, said=True)) == []
    assert talk.tell(AnswerWanted()) == [StartAnswer()]


def test_push_to_talk_ends_a_turn_by_hand_and_waits_to_be_asked() -> None:
    talk = Talk()
    assert talk.tell(HandedOver(1500)) == [EndTurn(1, 1500, by_hand=True)]
    assert talk.tell(AnswerWanted()) == [StartAnswer()]


def test_handing_over_in_the_middle_of_detected_speech_ends_that_turn() -> None:
    talk = Talk()
    talk.speech(320)
    assert talk.tell(HandedOver(320)) == [EndTurn(1, 320, by_hand=True)]
    assert talk.state.user is User.QUIET


def test_clearing_drops_the_speech_under_way() -> None:
    talk = Talk()
    talk.speech(320)
    assert talk.tell(Withdrawn()) == [DropTurn()]
    assert talk.tell(Withdrawn()) == []
    assert talk.silence(1000) == []


def test_cancelling_stops_the_answer_and_only_an_answer() -> None:
    talk = Talk().answered()
    assert talk.tell(AnswerUnwanted()) == [StopAnswer("client_cancelled")]
    assert talk.tell(AnswerUnwanted()) == []
    assert talk.state.phase == "listening"


@pytest.mark.parametrize("silence", [200, 300, 800, 2000])
def test_the_wait_is_the_one_that_was_asked_for(silence: int) -> None:
    talk = Talk(replace(RULES, timing=Timing(end_silence_ms=silence)))
    talk.speech(320)
    (ended,) = talk.silence(silence)
    assert isinstance(ended, EndTurn)
    assert talk.now - ended.at_ms < silence + WINDOW_MS


def judged(*, over_answer: bool = False) -> Talk:
    """Somebody who has spoken for 640 ms and then fallen silent for as long as a guess takes."""
    talk = Talk(JUDGING, guesses=True)
    if over_answer:
        talk.answered()
        talk.tell(FirstSound())
    talk.speech(640)
    talk.silence(TIMING.soft_end_ms)
    assert talk.state.guessing
    return talk


def test_a_short_silence_is_a_guess_and_speech_takes_it_back() -> None:
    talk = Talk(JUDGING, guesses=True)
    talk.speech(640)
    assert talk.silence(TIMING.soft_end_ms - WINDOW_MS) == []
    assert talk.silence(WINDOW_MS) == [Guess(1, 640)]
    assert talk.silence(WINDOW_MS) == []
    assert talk.speech(TIMING.resume_ms) == [DropGuess(talk.now - TIMING.resume_ms)]
    assert talk.speech(320) == []
    assert talk.silence(TIMING.soft_end_ms) == [Guess(2, talk.now - TIMING.soft_end_ms)]


def test_a_click_does_not_take_a_guess_back_nor_lengthen_the_wait() -> None:
    talk = judged()
    talk.tell(Judged(1, 400))
    assert talk.speech(WINDOW_MS) == []
    assert EndTurn(1, 640) in talk.silence(400 - TIMING.soft_end_ms - WINDOW_MS)


@pytest.mark.parametrize("wait", [250, 400, 700, 1200])
def test_the_endpointer_says_how_long_to_wait(wait: int) -> None:
    talk = judged()
    assert talk.tell(Judged(1, wait)) == []
    talk.silence(wait - 2 * WINDOW_MS - TIMING.soft_end_ms)
    assert talk.state.user is User.SPEAKING
    assert talk.silence(3 * WINDOW_MS) == [EndTurn(1, 640)]


def test_a_verdict_that_comes_late_ends_the_turn_at_once() -> None:
    talk = judged()
    talk.silence(320)
    assert talk.tell(Judged(1, 250)) == [EndTurn(1, 640)]


def test_while_the_answer_is_not_ready_the_turn_is_listened_to() -> None:
    talk = judged()
    talk.tell(Judged(1, 250, answering=True))
    assert talk.silence(320) == []  # longer than the wait, and nobody has anything to say yet
    assert talk.tell(Ready(1)) == [EndTurn(1, 640)]
    early = judged()
    assert early.tell(Ready(1)) == []
    assert early.tell(Judged(1, 250, answering=True)) == []
    assert early.silence(250 - TIMING.soft_end_ms) == [EndTurn(1, 640)]


def test_who_goes_on_before_the_answer_is_ready_is_not_cut_off() -> None:
    talk = judged()
    talk.tell(Judged(1, 250, answering=True))
    talk.silence(320)
    assert [type(action) for action in talk.speech(320)] == [DropGuess]
    assert talk.tell(Ready(1)) == []  # the answer to half a sentence
    talk.silence(TIMING.soft_end_ms)
    assert talk.tell(Ready(1)) == []
    talk.tell(Judged(2, 250, answering=True))
    assert talk.silence(320) == []


def test_an_answer_that_is_long_in_coming_does_not_hold_the_turn_open() -> None:
    talk = judged()
    talk.tell(Judged(1, 250, answering=True))
    assert EndTurn(1, 640) in talk.silence(TIMING.longest_wait_ms)
    assert talk.tell(Ready(1)) == []
    patient = judged()
    patient.tell(Judged(1, 1000, answering=True))
    patient.tell(Ready(1))
    assert patient.silence(TIMING.longest_wait_ms) == []


def test_a_verdict_on_an_older_guess_says_nothing_about_this_one() -> None:
    talk = judged()
    talk.speech(320)
    talk.silence(TIMING.soft_end_ms)
    assert talk.tell(Judged(1, 0)) == []
    assert talk.state.user is User.SPEAKING


def test_without_a_verdict_the_turn_ends_at_the_longest_wait() -> None:
    talk = judged()
    assert talk.silence(TIMING.longest_wait_ms) == [EndTurn(1, 640)]
    assert talk.now - 640 <= TIMING.longest_wait_ms + TIMING.soft_end_ms + 2 * WINDOW_MS


def test_a_word_of_listening_lets_the_answer_go_on() -> None:
    talk = judged(over_answer=True)
    (ended,) = talk.tell(Judged(talk.state.revision, TIMING.soft_end_ms, aside=True))
    assert isinstance(ended, EndTurn)
    assert talk.tell(Understood(2, said=True, aside=True)) == [ResumeAnswer()]
    assert talk.state.phase == "answering"


def test_a_cough_lets_the_answer_go_on() -> None:
    talk = judged(over_answer=True)
    talk.silence(TIMING.longest_wait_ms)
    assert talk.tell(Understood(2, said=False)) == [ResumeAnswer()]


def test_words_give_the_answer_up_before_the_turn_is_over() -> None:
    talk = judged(over_answer=True)
    assert talk.tell(Judged(talk.state.revision, 700)) == [StopAnswer("turn_detected")]
    assert talk.state.user is User.SPEAKING


def test_nobody_says_mhm_for_a_second() -> None:
    talk = Talk(JUDGING).answered()
    talk.tell(FirstSound())
    assert StopAnswer("turn_detected") not in talk.speech(TIMING.aside_ms - WINDOW_MS)
    assert talk.speech(2 * WINDOW_MS) == [StopAnswer("turn_detected")]


def test_an_answer_that_is_held_back_can_be_cancelled_and_replaced() -> None:
    talk = judged(over_answer=True)
    assert talk.tell(AnswerUnwanted()) == [StopAnswer("client_cancelled")]
    talk = judged(over_answer=True)
    assert talk.tell(AnswerWanted()) == [StopAnswer("client_cancelled"), StartAnswer()]
    talk = judged(over_answer=True)
    assert talk.tell(Withdrawn()) == [DropGuess(), DropTurn(), ResumeAnswer()]


EVENTS = st.one_of(
    st.tuples(st.just("hear"), st.sampled_from([0.0, 0.4, 0.9]), st.integers(1, 40)),
    st.sampled_from(
        [
            AnswerWanted(),
            AnswerUnwanted(),
            PlayedOut(),
            Withdrawn(),
            FirstSound(),
            "understood",
            "aside",
            "judged",
            "judged while answering",
            "ready",
            "ready too late",
            "handed over",
        ]
    ).map(lambda event: ("tell", event, 0)),
)


@given(st.lists(EVENTS, max_size=60), st.booleans(), st.booleans(), st.booleans())
def test_whatever_happens_turns_begin_and_end_in_order(
    events: list[tuple[str, object, int]], create: bool, interrupt: bool, by_silence: bool
) -> None:
    rules = TurnRules(create_response=create, interrupt_response=interrupt, by_silence=by_silence)
    talk = Talk(rules, guesses=True)
    open_turn, last_ended, answering, guessing, held = None, 0, False, False, False
    for kind, what, count in events:
        if kind == "hear":
            actions = talk.hear(count * WINDOW_MS, float(what))  # type: ignore[arg-type]
        elif what == "understood":
            actions = talk.tell(Understood(talk.state.awaited, said=True)) if talk.state.awaited else []
        elif what == "aside":
            actions = talk.tell(Understood(talk.state.awaited, said=True, aside=True)) if talk.state.awaited else []
        elif what in ("judged", "judged while answering"):
            actions = talk.tell(Judged(talk.state.revision, 250, answering=what != "judged"))
        elif what in ("ready", "ready too late"):
            actions = talk.tell(Ready(talk.state.revision - (what != "ready")))
        elif what == "handed over":
            actions = talk.tell(HandedOver(talk.now))
        else:
            actions = talk.tell(what)  # type: ignore[arg-type]
        for action in actions:
            match action:
                case Guess():
                    assert open_turn is not None and not guessing
                    guessing = True
                case DropGuess():
                    assert guessing
                    guessing = False
                case HoldAnswer():
                    assert answering and not held
                    held = True
                case ResumeAnswer():
                    assert held
                    held = False
                case BeginTurn(turn, at_ms):
                    assert open_turn is None and turn == last_ended + 1 and at_ms <= talk.now
                    open_turn = turn
                case EndTurn(turn, at_ms, by_hand):
                    assert turn == open_turn or (by_hand and open_turn is None)
                    assert at_ms <= talk.now
                    open_turn, last_ended, guessing = None, turn, False
                case DropTurn():
                    assert open_turn is not None
                    last_ended, open_turn = open_turn, None
                case StartAnswer():
                    assert not held
                    answering = True
                case StopAnswer():
                    assert answering
                    answering = held = False
        if what == PlayedOut() and StartAnswer() not in actions:
            answering = held = False
        assert (talk.state.user is User.SPEAKING) == (open_turn is not None)
        assert guessing == talk.state.guessing
        assert held == (talk.state.assistant is Assistant.HELD)
        assert answering == (talk.state.assistant in (Assistant.ANSWERING, Assistant.HELD))
