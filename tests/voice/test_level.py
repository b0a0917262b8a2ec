"""What is much softer than the user is not the user."""

from __future__ import annotations

import numpy as np

from voice.audio import Samples
from voice.level import LevelGate
from voice.vad import WINDOW


def sound(seconds: float, level_db: float, seed: int = 0, swing_db: float = 4.0) -> list[Samples]:
    """Windows of noise whose level goes up and down like speech."""
    random = np.random.default_rng(seed)
    count = round(seconds / 0.032)
    levels = level_db + random.normal(0, swing_db, count)
    return [(10 ** (level / 20) * random.standard_normal(WINDOW)).astype(np.float32) for level in levels]


def passed(gate: LevelGate, windows: list[Samples]) -> float:
    """Share that counts as the user."""
    counted = []
    for window in windows:
        gate.hear(window)
        counted.append(gate.loud())
    return float(np.mean(counted))


def test_in_a_quiet_room_all_speech_counts() -> None:
    gate = LevelGate()
    passed(gate, sound(2, -70))
    assert passed(gate, sound(4, -30)) > 0.9
    passed(gate, sound(0.5, -70))
    assert passed(gate, sound(2, -36)) > 0.9  # the user turns away a little


def test_soft_speech_alone_counts() -> None:
    gate = LevelGate()
    passed(gate, sound(2, -75))
    assert passed(gate, sound(2, -50)) > 0.95


def test_voices_behind_the_user_count_for_as_long_as_nobody_is_louder() -> None:
    gate = LevelGate()
    assert passed(gate, sound(2, -40)) > 0.8
    assert passed(gate, sound(2, -20, 1)) > 0.95
    assert passed(gate, sound(2, -40, 2)) < 0.1


def test_voices_ten_decibels_behind_the_user_seldom_count() -> None:
    gate = LevelGate()
    passed(gate, sound(1, -30, swing_db=3))
    assert passed(gate, sound(2, -20, 1, swing_db=5)) > 0.75
    assert passed(gate, sound(2, -30, 2, swing_db=3)) < 0.4


def test_digital_silence_breaks_nothing() -> None:
    gate = LevelGate()
    assert passed(gate, [np.zeros(WINDOW, np.float32)] * 50) <= 1
    assert passed(gate, sound(1, -30)) > 0.95
