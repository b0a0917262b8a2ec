"""Speech much softer than the user's is not the user's."""

from __future__ import annotations

import numpy as np

from voice.audio.codec import Samples
from voice.audio.loudness_gate import LoudnessGate
from voice.audio.vad import WINDOW_SAMPLES


def noise(seconds: float, level_db: float, seed: int = 0, swing_db: float = 4.0) -> list[Samples]:
    """Windows of noise whose level varies like that of speech."""
    random = np.random.default_rng(seed)
    count = round(seconds / 0.032)
    levels = level_db + random.normal(0, swing_db, count)
    return [(10 ** (level / 20) * random.standard_normal(WINDOW_SAMPLES)).astype(np.float32) for level in levels]


def share_passed(gate: LoudnessGate, windows: list[Samples]) -> float:
    """Share of the windows that count as the user."""
    passed = []
    for window in windows:
        gate.push(window)
        passed.append(gate.is_loud_enough())
    return float(np.mean(passed))


def test_in_a_quiet_room_all_speech_counts() -> None:
    gate = LoudnessGate()
    share_passed(gate, noise(2, -70))
    assert share_passed(gate, noise(4, -30)) > 0.9
    share_passed(gate, noise(0.5, -70))
    assert share_passed(gate, noise(2, -36)) > 0.9  # the user turns away a little


def test_soft_speech_alone_counts() -> None:
    gate = LoudnessGate()
    share_passed(gate, noise(2, -75))
    assert share_passed(gate, noise(2, -50)) > 0.95


def test_background_voices_count_as_long_as_nobody_is_louder() -> None:
    gate = LoudnessGate()
    assert share_passed(gate, noise(2, -40)) > 0.7
    assert share_passed(gate, noise(2, -20, 1)) > 0.95
    assert share_passed(gate, noise(2, -40, 2)) < 0.1


def test_voices_ten_decibels_below_the_user_rarely_count() -> None:
    gate = LoudnessGate()
    share_passed(gate, noise(1, -30, swing_db=3))
    assert share_passed(gate, noise(2, -20, 1, swing_db=5)) > 0.75
    assert share_passed(gate, noise(4, -30, 2, swing_db=3)) < 0.05
    assert gate.is_noisy


def test_the_soft_end_of_a_word_counts_only_right_after_its_loud_part() -> None:
    gate = LoudnessGate()
    share_passed(gate, noise(2, -30, swing_db=1))
    share_passed(gate, noise(2, -16, 1, swing_db=1))
    softer = noise(0.1, -25, 2, swing_db=0)  # between the user and the background, a little nearer to the background
    assert share_passed(gate, softer) == 1
    share_passed(gate, noise(0.3, -30, 3, swing_db=1))
    assert share_passed(gate, softer) == 0


def test_a_quiet_room_is_not_noisy() -> None:
    gate = LoudnessGate()
    share_passed(gate, noise(2, -70))
    share_passed(gate, noise(2, -30, 1))
    assert not gate.is_noisy


def test_digital_silence_is_handled() -> None:
    gate = LoudnessGate()
    assert share_passed(gate, [np.zeros(WINDOW_SAMPLES, np.float32)] * 50) <= 1
    assert share_passed(gate, noise(1, -30)) > 0.95


def test_in_noise_what_stays_softer_than_the_user_for_a_second_is_not_the_user() -> None:
    """Several voices 5 dB below the user pass the threshold, but not for ever."""
    gate = LoudnessGate()
    share_passed(gate, noise(2, -27, swing_db=3))
    share_passed(gate, noise(2, -20, 1, swing_db=1))
    softer = noise(2, -25, 2, swing_db=0.3)
    assert share_passed(gate, softer[:20]) > 0.9  # the user may be as soft as that for a while
    share_passed(gate, softer[20:40])
    assert share_passed(gate, softer[40:]) == 0
    assert share_passed(gate, noise(0.5, -20, 3, swing_db=1)) > 0.9  # the user goes on
