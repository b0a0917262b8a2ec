"""The model of the listener's player."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulator.player import Player
from tests.lab.report.samples import tone
from voice.audio.codec import OUTPUT_RATE


def test_leading_silence_is_not_audible() -> None:
    player = Player()
    player.push(10.0, "r", "i", tone(0.1, leading_silence=0.15))
    assert player.first_audible() == pytest.approx(10.15)


def test_a_gap_within_a_response_is_an_underrun_and_a_gap_before_a_new_response_is_not() -> None:
    player = Player()
    player.push(0.0, "r", "i", tone(0.1))
    player.push(0.05, "r", "i", tone(0.1))
    player.push(0.3, "r", "i", tone(0.1))
    player.push(2.0, "s", "j", tone(0.1))
    assert [(round(start, 3), round(length, 3)) for start, length in player.gaps] == [(0.2, 0.1)]


def test_clearing_reports_what_was_heard() -> None:
    player = Player()
    player.push(0.0, "r", "i", tone(1.0))
    player.push(0.1, "r", "i", tone(1.0))
    assert player.clear(1.25) == ("i", 1250)
    assert player.last_audible("r") == pytest.approx(1.25)
    assert player.clear(1.3) is None


@given(st.lists(st.integers(1, 48_000), min_size=1, max_size=8), st.floats(0.001, 10))
def test_a_cleared_player_plays_the_next_audio_immediately(sizes: list[int], cleared_at: float) -> None:
    player = Player()
    for size in sizes:
        player.push(0.0, "r", "i", np.full(size, 0.5, np.float32))
    length = player.end
    player.clear(cleared_at)
    assert player.end == min(cleared_at, length)
    assert player.heard_ms("i") == pytest.approx(1000 * min(cleared_at, length), abs=1.01)
    assert player.push(cleared_at + 1, "s", "j", tone(0.1)).start == cleared_at + 1
    assert not player.gaps


@given(st.lists(st.tuples(st.floats(0, 0.5), st.integers(1, 4800)), min_size=1, max_size=20))
def test_a_player_plays_all_audio_in_order_and_without_overlap(pushed: list[tuple[float, int]]) -> None:
    player, now = Player(), 0.0
    for wait, size in pushed:
        now += wait
        player.push(now, "r", "i", np.full(size, 0.5, np.float32))
    assert all(a.end <= b.start for a, b in zip(player.chunks, player.chunks[1:], strict=False))
    silent = sum(length for _, length in player.gaps)
    sounding = sum(size for _, size in pushed) / OUTPUT_RATE
    assert player.end - player.chunks[0].start == pytest.approx(sounding + silent, abs=0.001 * len(pushed))
