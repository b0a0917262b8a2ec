"""When a turn in progress is transcribed."""

from __future__ import annotations

from dataclasses import replace

from voice.interim_transcripts import InterimTranscripts
from voice.timing import Timing
from voice.turn_machine import TurnState, User

TIMING = Timing()
SPEAKING = TurnState(user=User.SPEAKING, turn=1)


def speaking(received_ms: int, voiced_ms: int) -> TurnState:
    return replace(SPEAKING, received_ms=received_ms, last_voiced_ms=voiced_ms)


def test_enough_new_speech_is_transcribed() -> None:
    interim = InterimTranscripts()
    assert interim.next_transcription(200, speaking(200, 200), TIMING, busy=False) is None
    assert interim.next_transcription(240, speaking(240, 240), TIMING, busy=False) == "partial"
    assert interim.next_transcription(352, speaking(352, 352), TIMING, busy=False) is None
    assert interim.next_transcription(480, speaking(480, 480), TIMING, busy=False) == "partial"


def test_a_slow_machine_transcribes_less_often() -> None:
    interim = InterimTranscripts(last_duration_ms=200)
    assert interim.next_transcription(500, speaking(500, 500), TIMING, busy=False) is None
    assert interim.next_transcription(600, speaking(600, 600), TIMING, busy=False) == "partial"


def test_each_silence_triggers_one_early_transcription() -> None:
    interim = InterimTranscripts()
    assert interim.next_transcription(1000, speaking(1032, 1000), TIMING, busy=False) is None
    assert interim.next_transcription(1000, speaking(1064, 1000), TIMING, busy=False) == "early"
    assert interim.next_transcription(1100, speaking(1160, 1000), TIMING, busy=False) is None
    assert interim.next_transcription(1300, speaking(1364, 1300), TIMING, busy=False) == "early"  # more speech


def test_a_partial_transcript_of_the_last_word_does_not_replace_the_early_one() -> None:
    interim = InterimTranscripts()
    assert interim.next_transcription(960, speaking(960, 960), TIMING, busy=False) == "partial"
    assert interim.next_transcription(960, speaking(1024, 960), TIMING, busy=True) == "early"


def test_the_early_transcription_does_not_wait_for_a_partial_one_in_progress() -> None:
    interim = InterimTranscripts()
    assert interim.next_transcription(320, speaking(320, 320), TIMING, busy=False) == "partial"
    assert interim.next_transcription(700, speaking(700, 700), TIMING, busy=True) is None
    assert interim.next_transcription(764, speaking(764, 700), TIMING, busy=True) == "early"
    interim = InterimTranscripts()
    assert interim.next_transcription(320, speaking(320, 320), TIMING, busy=False) == "partial"


def test_nothing_is_transcribed_during_speculation() -> None:
    assert (
        InterimTranscripts().next_transcription(
            1000, replace(speaking(1200, 1000), speculating=True), TIMING, busy=False
        )
        is None
    )
