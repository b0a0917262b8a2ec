"""The simulation that measures how late the end of speech is detected, on made-up frames."""

from __future__ import annotations

import numpy as np
import pytest

from lab.benchmarks.noisy_turns.simulation import detect
from lab.benchmarks.noisy_turns.turns import NoisyTurn
from voice.audio.vad import WINDOW_MS, Frame

START_MS, END_MS = 64 * WINDOW_MS, 128 * WINDOW_MS
NO_AUDIO = np.zeros(0, np.float32)
TURN = NoisyTurn("anna", "babble", 10.0, NO_AUDIO, NO_AUDIO, START_MS, END_MS, "What time is it?")


def frames(*voiced_ms: tuple[int, int]) -> list[Frame]:
    """Ten seconds of windows, voiced in the given intervals."""
    starts = range(0, 10_000, WINDOW_MS)
    return [Frame(float(any(a <= ms < b for a, b in voiced_ms)), ms, ms + WINDOW_MS) for ms in starts]


def test_a_perfect_detector_has_no_delay() -> None:
    found = detect(TURN, frames((START_MS, END_MS)), 250)
    assert (found.delay_ms, found.false_ends, found.false_starts, found.onset_ms) == (0, 0, 0, 0)


@pytest.mark.parametrize(("wait_ms", "delay_ms"), [(250, 0), (700, 480 + 2 * WINDOW_MS)])
def test_noise_in_the_silence_delays_the_end_if_the_words_were_misheard(wait_ms: int, delay_ms: int) -> None:
    noise = (END_MS + 480, END_MS + 480 + 2 * WINDOW_MS)
    assert detect(TURN, frames((START_MS, END_MS), noise), wait_ms).delay_ms == delay_ms


def test_speech_that_is_not_detected_is_missed() -> None:
    assert detect(TURN, frames(), 250).delay_ms is None
    assert detect(TURN, frames((START_MS, 10_000)), 250).delay_ms is None


def test_noise_before_the_speech_takes_a_turn_and_a_gap_within_it_ends_one() -> None:
    found = detect(TURN, frames((320, 640), (START_MS, START_MS + 640), (END_MS - 320, END_MS)), 250)
    assert (found.delay_ms, found.false_ends, found.false_starts) == (0, 1, 1)
