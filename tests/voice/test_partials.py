"""When what was said so far is transcribed."""

from __future__ import annotations

from dataclasses import replace

from voice.partials import Partials
from voice.timing import Timing
from voice.turn import TurnState, User

TIMING = Timing()
SPEAKING = TurnState(user=User.SPEAKING, turn=1)


def at(heard_ms: int, voiced_ms: int) -> TurnState:
    return replace(SPEAKING, heard_ms=heard_ms, last_voiced_ms=voiced_ms)


def test_enough_new_speech_is_transcribed() -> None:
    partials = Partials()
    assert partials.wish(200, at(200, 200), TIMING, busy=False) is None
    assert partials.wish(240, at(240, 240), TIMING, busy=False) == "partial"
    assert partials.wish(352, at(352, 352), TIMING, busy=False) is None
    assert partials.wish(480, at(480, 480), TIMING, busy=False) == "partial"


def test_a_slow_machine_transcribes_less_often() -> None:
    partials = Partials(took_ms=200)
    assert partials.wish(500, at(500, 500), TIMING, busy=False) is None
    assert partials.wish(600, at(600, 600), TIMING, busy=False) == "partial"


def test_the_first_silence_is_transcribed_with_care_and_once() -> None:
    partials = Partials()
    assert partials.wish(1000, at(1032, 1000), TIMING, busy=False) is None
    assert partials.wish(1000, at(1064, 1000), TIMING, busy=False) == "ahead"
    assert partials.wish(1100, at(1160, 1000), TIMING, busy=False) is None
    assert partials.wish(1300, at(1364, 1300), TIMING, busy=False) == "ahead"  # the user went on


def test_a_partial_of_the_last_word_does_not_stand_for_the_careful_one() -> None:
    partials = Partials()
    assert partials.wish(960, at(960, 960), TIMING, busy=False) == "partial"
    assert partials.wish(960, at(1024, 960), TIMING, busy=True) == "ahead"


def test_silence_does_not_wait_for_a_partial_under_way() -> None:
    partials = Partials()
    assert partials.wish(320, at(320, 320), TIMING, busy=False) == "partial"
    assert partials.wish(700, at(700, 700), TIMING, busy=True) is None
    assert partials.wish(764, at(764, 700), TIMING, busy=True) == "ahead"
    partials.begin()
    assert partials.wish(320, at(320, 320), TIMING, busy=False) == "partial"


def test_nothing_is_begun_while_a_guess_stands() -> None:
    assert Partials().wish(1000, replace(at(1200, 1000), guessing=True), TIMING, busy=False) is None
