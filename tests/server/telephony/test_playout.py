"""Playout: chunks, pace, marks and truncation, on a clock that the test controls."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.telephony.playout import MARK_INTERVAL_MS, Playout, Truncation
from tests.server.telephony.sine import sine
from voice.audio.codec import OUTPUT_RATE, Encoding, decode, encode
from voice.audio.resampling import Resampler


def new_playout(returns_marks: bool = True, send_ahead_ms: int = 300) -> Playout:
    return Playout(8, 0xFF, chunk_ms=20, send_ahead_ms=send_ahead_ms, returns_marks=returns_marks)


def test_all_chunks_arrive_and_none_is_sent_too_far_ahead() -> None:
    playout = new_playout()
    playout.add("a", bytes(range(200)) * 80)  # 2 s
    playout.end_item()
    sent = b""
    for n in range(200):
        now = 10 + n * 0.01
        sent += b"".join(chunk.data for chunk in playout.due(now))
        assert len(sent) / 8000 <= now - 10 + 0.3 + 1e-6
    assert sent == bytes(range(200)) * 80


def test_a_call_of_thirty_minutes_does_not_drift() -> None:
    playout, sent, now, timer_noise = new_playout(), 0, 0.0, random.Random(1)
    next_block = 0.0
    while now < 1800:
        while next_block <= now + 1.0:
            playout.add("a", bytes(800))
            next_block += 0.1
        sent += sum(len(chunk.data) for chunk in playout.due(now))
        ahead_ms = sent / 8 - 1000 * now
        assert 300 - 20 - 33 <= ahead_ms <= 300 + 1e-3, now
        now += 0.02 + timer_noise.uniform(-0.005, 0.012)


def test_after_a_stall_no_more_is_sent_ahead_than_usual() -> None:
    playout = new_playout()
    playout.add("a", bytes(80_000))
    assert sum(1 for _ in playout.due(0.0)) == 15
    assert sum(1 for _ in playout.due(5.0)) == 15  # the stall was silence; sending more only adds delay


def test_the_last_chunk_of_an_item_waits_for_its_end_and_is_padded_with_silence() -> None:
    playout = new_playout()
    playout.add("a", b"\x01" * 200)
    assert [chunk.data for chunk in playout.due(0.0)] == [b"\x01" * 160]
    playout.end_item()
    assert [chunk.data for chunk in playout.due(0.0)] == [b"\x01" * 40 + b"\xff" * 120]


def test_a_clear_truncates_at_the_last_mark_that_was_played() -> None:
    playout = new_playout()
    playout.add("a", bytes(8 * 2000))
    marks = [chunk.mark for chunk in playout.due(0.0) if chunk.mark]
    assert len(marks) == 300 // MARK_INTERVAL_MS
    playout.mark_played(marks[0])
    playout.mark_played(marks[1])
    assert playout.clear(0.25) == [Truncation("a", 2 * MARK_INTERVAL_MS)]


def test_marks_returned_by_a_clear_do_not_count_as_played() -> None:
    playout = new_playout()
    playout.add("a", bytes(8 * 2000))
    first = [chunk.mark for chunk in playout.due(0.0) if chunk.mark]
    playout.mark_played(first[0])
    playout.clear(0.15)
    playout.add("b", bytes(8 * 2000))
    list(playout.due(0.2))
    for mark in first:
        playout.mark_played(mark)
    assert playout.clear(0.2) == [Truncation("b", 0)]


def test_an_item_heard_to_its_end_is_not_truncated_and_a_queued_one_was_not_heard() -> None:
    playout = new_playout()
    playout.add("a", bytes(8 * 100))
    playout.add("b", bytes(8 * 100))
    playout.end_item()
    marks = [chunk.mark for chunk in playout.due(0.0) if chunk.mark]
    playout.mark_played(marks[0])
    assert playout.finished("a", 1.0)
    playout.add("c", bytes(8 * 1000))
    assert playout.clear(0.1) == [Truncation("b", 0), Truncation("c", 0)]
    assert not playout.busy(0.1)


def test_without_marks_playback_is_estimated_by_the_clock() -> None:
    playout = new_playout(returns_marks=False, send_ahead_ms=60)
    playout.add("a", bytes(8 * 2000))
    for n in range(50):
        assert all(chunk.mark is None for chunk in playout.due(n * 0.02))
    (truncation,) = playout.clear(1.0)
    assert truncation.heard_ms == pytest.approx(1000, abs=25)


def test_nothing_is_sent_while_the_carriers_buffer_is_full() -> None:
    playout = new_playout()
    playout.add("a", bytes(8 * 2000))
    playout.pause(True)
    assert list(playout.due(0.0)) == []
    playout.pause(False)
    assert len(list(playout.due(0.0))) == 15


@given(st.lists(st.tuples(st.sampled_from("adecp"), st.integers(0, 500)), max_size=60))
@settings(deadline=None)
def test_no_more_is_heard_than_was_sent(steps: list[tuple[str, int]]) -> None:
    playout, now, item, marks = new_playout(), 0.0, 0, []
    added: dict[str, int] = {}
    for kind, n in steps:
        if kind == "a":
            playout.add(f"i{item}", bytes(n))
            added[f"i{item}"] = added.get(f"i{item}", 0) + n
        elif kind == "e":
            playout.end_item()
            item += 1
        elif kind == "p" and marks:
            playout.mark_played(marks.pop(n % len(marks)))
        elif kind == "c":
            for truncation in playout.clear(now):
                assert 0 <= truncation.heard_ms <= added[truncation.item_id] / 8
            item += 1
        now += n / 1000
        marks += [chunk.mark for chunk in playout.due(now) if chunk.mark]


@pytest.mark.parametrize(("encoding", "max_error"), [("pcmu", 0.017), ("pcma", 0.017), ("pcm", 0.002)])
def test_a_sine_is_played_without_clicks(encoding: Encoding, max_error: float) -> None:
    """In blocks of 100 ms like responses: resampled, encoded, cut into frames, and joined by the carrier."""
    wave, resampler, received = sine(OUTPUT_RATE, 3.0), Resampler(OUTPUT_RATE, 8_000), bytearray()
    width = 2 if encoding == "pcm" else 1
    playout = Playout(8 * width, 0, chunk_ms=20, send_ahead_ms=300, returns_marks=True)
    for start in range(0, len(wave), 2400):
        playout.add("a", encode(resampler.push(wave[start : start + 2400]), encoding))
    playout.add("a", encode(resampler.push(wave[:0], last=True), encoding))
    playout.end_item()
    for n in range(200):
        for chunk in playout.due(n * 0.02):
            received += chunk.data
    samples = decode(bytes(received), encoding)[: 3 * 8000]
    error = np.abs(samples - sine(8_000, 3.0))[200:-200]
    assert error.max() < max_error
    assert np.abs(np.diff(samples[200:-200])).max() < 2 * np.pi * 440 / 8000 * 0.5 + 2 * max_error
